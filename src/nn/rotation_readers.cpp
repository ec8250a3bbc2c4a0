#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/family_readers.h"

namespace tracestep::readers {
namespace {

// Returns YaRN's factor on cos and sin.
double yarn_magnitude(ConfigFields& f, double factor) {
  const auto of = [factor](double share) {
    return factor <= 1.0 ? 1.0 : 0.1 * share * std::log(factor) + 1.0;
  };
  const double own = f.real("mscale", 0.0), all = f.real("mscale_all_dim", 0.0);
  const double usual = own > 0.0 && all > 0.0 ? of(own) / of(all) : of(1.0);
  return f.real("attention_factor", usual);
}

// Reads a list of factors, one for each pair of elements that are rotated.
std::vector<double> factors_of(ConfigFields& f, std::string_view key, std::int64_t pairs) {
  const Json* list = f.find(key);
  const auto is_factor = [](const Json& x) {
    return x.is_number() && std::isfinite(x.as_double()) && x.as_double() > 0.0;
  };
  if (list == nullptr || !list->is_array() || std::ssize(list->items()) != pairs ||
      !std::ranges::all_of(list->items(), is_factor)) {
    f.fail(key, fmt::format("a list of {} factors", pairs));
  }
  std::vector<double> out;
  for (const Json& item : list->items()) out.push_back(item.as_double());
  return out;
}

void read_longrope(ConfigFields& f, const Lengths& lengths, const ModelConfig& c,
                   RopeScaling& out) {
  const auto original = static_cast<double>(out.original);
  const double factor = f.real("factor", static_cast<double>(lengths.most) / original);
  const double usual = factor <= 1.0 || out.original <= 1
                           ? 1.0
                           : std::sqrt(1 + std::log(factor) / std::log(original));
  out.magnitude = f.real("attention_factor", usual);
  const bool is_share = c.rope_share > 0.0 && c.rope_share <= 1.0;
  const std::int64_t pairs = is_share ? c.rotated_width() / 2 : 0;
  out.near = factors_of(f, "short_factor", pairs);
  out.far = factors_of(f, "long_factor", pairs);
}

RopeScalingKind scaling_kind_of(ConfigFields& f, const Lengths& lengths) {
  const std::string old = f.text("type", "default"), kind = f.text("rope_type", old);
  if (lengths.has_sections && kind == "mrope") return RopeScalingKind::kNone;
  const auto found = named<RopeScalingKind>(kind);
  if (kind == "default") return RopeScalingKind::kNone;
  if (lengths.has_old_names && (kind == "su" || kind == "yarn")) return RopeScalingKind::kLongRope;
  if (!found || kind == "none") {
    f.fail(f.find("rope_type") != nullptr ? "rope_type" : "type",
           "default, linear, llama3, yarn or longrope");
  }
  return *found;
}

RopeScaling scaling_of(ConfigFields& f, const Lengths& lengths, const ModelConfig& c) {
  RopeScaling out{.kind = scaling_kind_of(f, lengths)};
  if (out.kind == RopeScalingKind::kNone) return out;
  const std::int64_t own = f.integer("original_max_position_embeddings", lengths.most);
  if (out.kind != RopeScalingKind::kLinear) {
    out.original = lengths.original > 0 ? lengths.original : own;
  }
  if (out.kind == RopeScalingKind::kLongRope) {
    read_longrope(f, lengths, c, out);
    return out;
  }
  if (f.find("factor") == nullptr) f.fail("factor", "a factor of at least 1");
  out.factor = f.real("factor", 1.0);
  if (out.kind == RopeScalingKind::kLlama3) {
    out.low = f.real("low_freq_factor", 1.0);
    out.high = f.real("high_freq_factor", 4.0);
  } else if (out.kind == RopeScalingKind::kYarn) {
    out.low = f.real("beta_slow", 1.0);
    out.high = f.real("beta_fast", 32.0);
    out.magnitude = yarn_magnitude(f, out.factor);
    f.expect("truncate", true);
  }
  return out;
}

// Checks "mrope_section": how many pairs turn by a token's place in time, in height and in width.
// In a text the three places are equal, so that nothing changes.
void check_sections(ConfigFields& f, const ModelConfig& c) {
  const Json* sections = f.find("mrope_section");
  if (sections == nullptr) return;
  std::int64_t pairs = 0;
  const bool is_list =
      sections->is_array() && std::ranges::all_of(sections->items(), &Json::is_int);
  if (is_list) {
    for (const Json& one : sections->items()) pairs += one.as_int();
  }
  if (pairs * 2 != c.head_width()) {
    f.fail("mrope_section", fmt::format("a list that adds up to {} pairs", c.head_width() / 2));
  }
}

// Reads the rotation from a member that is an object. `from`: the fields of the object around it.
void read_rope(const Json& json, const std::string& where, const ConfigFields& from,
               const Lengths& lengths, double& theta, ModelConfig& c) {
  if (!json.is_object()) fail_input(where, "it is {}; an object is expected", json.dump());
  ConfigFields f(json, where, from.unknown());
  theta = f.real("rope_theta", theta);
  if (theta < 1.0) f.fail("rope_theta", "a base of at least 1");
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  c.rope_scaling = scaling_of(f, lengths, c);
  if (lengths.has_sections) check_sections(f, c);
  f.finish();
}

}  // namespace

void read_rotation(ConfigFields& f, ModelConfig& c, Lengths lengths) {
  if (f.find("max_position_embeddings") != nullptr) {
    c.max_positions = lengths.most = f.integer("max_position_embeddings", 1);
  }
  if (f.find("original_max_position_embeddings") != nullptr) {
    lengths.original = f.integer("original_max_position_embeddings", 1);
  }
  f.expect("rope_interleaved", false);
  c.rope_theta = f.real("rope_theta", c.rope_theta);
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  if (const Json* scaling = f.find("rope_scaling")) {
    read_rope(*scaling, f.where() + " rope_scaling", f, lengths, c.rope_theta, c);
  }
  const Json* all = f.find("rope_parameters");
  if (all == nullptr) return;
  const std::string where = f.where() + " rope_parameters";
  if (!all->is_object()) f.fail("rope_parameters", "an object");
  const Json *full = all->find("full_attention"), *windowed = all->find("sliding_attention");
  if (full == nullptr) return read_rope(*all, where, f, lengths, c.rope_theta, c);
  read_rope(*full, where + " full_attention", f, lengths, c.rope_theta, c);
  if (windowed == nullptr) return;
  double theta = c.rope_theta_windowed;
  ModelConfig unscaled = c;
  read_rope(*windowed, where + " sliding_attention", f, lengths, theta, unscaled);
  if (unscaled.rope_scaling.kind != RopeScalingKind::kNone) {
    fail_input(where, "layers with a window are scaled; only the others can be");
  }
  if (unscaled.rope_share != c.rope_share) {
    fail_input(where, "layers with a window rotate another part of a head than the others");
  }
  c.rope_theta_windowed = theta;
}

}  // namespace tracestep::readers
