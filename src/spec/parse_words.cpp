#include "spec/parse_words.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "base/error.h"
#include "base/suggest.h"
#include "base/units.h"

namespace tracestep {
namespace {

constexpr std::string_view kEvery = "every=", kBudget = "budget=";
constexpr int kMostTogether = 1 << 20;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(at, start), text.size());
    out.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

bool is_path(std::string_view text) {
  const auto is_name = [](const std::string& name) {
    const auto of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    return name == "*" || (!name.empty() && std::ranges::all_of(name, of_name));
  };
  return std::ranges::all_of(split(text, '.'), is_name);
}

std::vector<std::string> composite_names() {
  std::vector<std::string> out;
  for (Composite composite : kNamedComposites) out.emplace_back(name_of(composite));
  return out;
}

// Parses LongRoPE's original positions, its magnitude, and two lists of equal length into `out`.
void parse_longrope(const About& where, const std::vector<std::string>& parts, RopeScaling& out) {
  if (parts.size() < 5 || parts.size() % 2 == 0) {
    fail_usage(where, "longrope takes two numbers and two lists of one length, {} are given",
               parts.size() - 1);
  }
  const auto real = [&](std::size_t i) { return parse_real(where, parts[i], 0.0, 1e9); };
  out.original = parse_int(where, parts[1], 1, std::int64_t{1} << 40);
  out.magnitude = real(2);
  const std::size_t pairs = (parts.size() - 3) / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    out.near.push_back(real(3 + i));
    out.far.push_back(real(3 + pairs + i));
  }
}

}  // namespace

RopeScaling parse_rope_scaling(const About& where, const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  check_choice(where, parts[0], words_of_all<RopeScalingKind>());
  RopeScaling out;
  out.kind = *named<RopeScalingKind>(parts[0]);
  if (out.kind == RopeScalingKind::kLongRope) {
    parse_longrope(where, parts, out);
    return out;
  }
  constexpr std::size_t counts[] = {1, 2, 5, 6};  // the name and its numbers, by kind
  if (parts.size() != counts[static_cast<std::size_t>(out.kind)]) {
    fail_usage(where, "{} takes {} numbers, {} are given", parts[0],
               counts[static_cast<std::size_t>(out.kind)] - 1, parts.size() - 1);
  }
  const auto real = [&](std::size_t i, double& to) {
    if (i < parts.size()) to = parse_real(where, parts[i], 0.0, 1e9);
  };
  real(1, out.factor);
  real(2, out.low);
  real(3, out.high);
  if (parts.size() > 4) out.original = parse_int(where, parts[4], 1, std::int64_t{1} << 40);
  real(5, out.magnitude);
  return out;
}

Granularity parse_granularity(const About& where, const std::string& text) {
  for (Granularity granularity : kAllGranularities) {
    if (text == name_of(granularity)) return granularity;
  }
  std::vector<std::string> known = composite_names();
  // A single word may be a misspelt "primitive" or "fused".
  if (text.find('+') == std::string::npos) {
    for (Granularity granularity : kAllGranularities) known.push_back(name_of(granularity));
  }
  Granularity out = Granularity::kPrimitive;
  for (const std::string& part : checked_parts(where, text, known)) {
    out = out.with(*named<Composite>(part));
  }
  return out;
}

Recomputation parse_recomputation(const About& where, const std::string& text) {
  if (text == "none") return {};
  if (text == "blocks") return Recomputation::blocks();
  if (text == "nested") return Recomputation::nested();
  if (text.starts_with(kEvery)) {
    const auto n = parse_int(where, text.substr(kEvery.size()), 1, kMostTogether);
    return Recomputation::blocks(static_cast<int>(n));
  }
  if (text.starts_with(kBudget)) {
    const std::int64_t bytes = parse_bytes(where, text.substr(kBudget.size()));
    if (bytes < 1) fail_usage(where, "\"{}\" leaves no memory at all", text);
    return {.kind = Recomputation::Kind::kBudget, .budget_bytes = bytes};
  }
  const std::vector<std::string> paths = split(text, '+');
  const std::array<std::string, 5> words = {"none", "blocks", "nested", "every=2", "budget=20GiB"};
  const auto close = closest(text, words);
  if (close || !std::ranges::all_of(paths, is_path)) {
    throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" is no choice", text),
                close ? fmt::format("did you mean {}?", *close)
                      : "give none, blocks, nested, every=N, budget=SIZE, or paths as "
                        "layers.*.ffn+layers.*.attn");
  }
  return Recomputation::parts(paths);
}

}  // namespace tracestep
