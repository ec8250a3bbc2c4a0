#include "weights/left_out.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/rope_frequency.h"

namespace tracestep {
namespace {

constexpr std::string_view kFrequencies = "rotary_emb.inv_freq", kMaskedBias = ".masked_bias";
constexpr std::string_view kMasks[] = {".attn.bias", ".attention.bias"};

std::vector<double> numbers_of(const HostTensor& tensor) {
  const HostTensor wide = as_dtype(tensor, DType::kF64);
  const auto all = wide.as<double>();
  return {all.begin(), all.end()};
}

// Returns the sets of rotation frequencies that a published file may hold: those of the config
// without scaling, those of layers with a window, and the scaled ones.
std::vector<ops::RopeFrequency> frequencies_of(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  ops::RopeFrequency plain{.theta = c.rope_theta,
                           .width = static_cast<double>(c.rotated_width()),
                           .scale = ops::RopeScale::kNone,
                           .factor = s.factor,
                           .low = s.low,
                           .high = s.high,
                           .original = static_cast<double>(s.original),
                           .factors = {}};
  std::vector<ops::RopeFrequency> out{plain};
  if (c.rope_theta_windowed > 0.0) {
    out.push_back(plain);
    out.back().theta = c.rope_theta_windowed;
  }
  if (s.kind == RopeScalingKind::kNone) return out;
  plain.scale = static_cast<ops::RopeScale>(s.kind);
  std::ranges::copy(s.near, plain.factors);
  out.push_back(plain);
  return out;
}
static_assert(static_cast<int>(RopeScalingKind::kLongRope) ==
              static_cast<int>(ops::RopeScale::kLongRope));

// Returns the relative error of a stored number by rounding: to bf16, to fp16, or to float32.
double tolerance_of(DType dtype) {
  if (dtype == DType::kBF16) return 1.0 / 128;
  return dtype == DType::kF16 ? 1.0 / 512 : 1e-5;
}

std::string fault_of_frequencies(const HostTensor& tensor, const ModelConfig& c) {
  const std::vector<double> seen = numbers_of(tensor);
  if (c.positions != Positions::kRotary || std::ssize(seen) != c.rotated_width() / 2) {
    return fmt::format(
        "has {} of rotation, and the model by its config.json {}",
        seen.size() == 1 ? "one frequency" : fmt::format("{} frequencies", seen.size()),
        c.rotated_width() / 2);
  }
  const double tolerance = tolerance_of(tensor.dtype);
  const double least = tensor.dtype == DType::kF16 ? 6e-8 : 0.0;  // a step of its small numbers
  const auto first_other = [&](const ops::RopeFrequency& frequency) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double assumed = frequency.of(static_cast<double>(i));
      if (!(std::abs(seen[i] - assumed) <= tolerance * assumed + least)) return i;
    }
    return seen.size();
  };
  std::size_t at = 0;
  const std::vector<ops::RopeFrequency> all = frequencies_of(c);
  for (const ops::RopeFrequency& one : all) at = std::max(at, first_other(one));
  if (at == seen.size()) return "";
  return fmt::format(
      "has the frequency {:.6g} for pair {}, and the model by its config.json {:.6g}", seen[at], at,
      all.back().of(static_cast<double>(at)));
}

// Says why the tensor is no causal mask, [.., query, key]; empty: it is one.
std::string fault_of_mask(const HostTensor& mask) {
  const Shape& shape = mask.shape;
  if (shape.rank() < 2 || shape.back(0) != shape.back(1)) {
    return fmt::format("is {}, which is no mask of queries and keys",
                       Type{mask.dtype, shape}.str());
  }
  const auto side = static_cast<std::size_t>(shape.back(0));
  const std::size_t size = size_of(mask.dtype);
  for (std::size_t at = 0; at * size < mask.bytes.size(); ++at) {
    const std::size_t query = at / side % side, key = at % side;
    const auto* const element = mask.bytes.data() + at * size;
    const bool sees =
        std::any_of(element, element + size, [](std::byte b) { return b != std::byte{}; });
    if (sees == (key <= query)) continue;
    return fmt::format("is a mask by which token {} {} token {}; a token sees all up to its own",
                       query, sees ? "sees" : "does not see", key);
  }
  return "";
}

// Says why the tensor cannot replace hidden scores: it is not far below all others; empty: it can.
std::string fault_of_masked_bias(const HostTensor& tensor) {
  constexpr double kHidden = -9000.0;
  for (const double x : numbers_of(tensor)) {
    if (!(x <= kHidden)) return fmt::format("is {}, which hides no score", x);
  }
  return "";
}

}  // namespace

bool is_buffer(std::string_view name) {
  return name.ends_with(kFrequencies) || name.ends_with(kMaskedBias) ||
         std::ranges::any_of(kMasks, [&](std::string_view mask) { return name.ends_with(mask); });
}

std::string fault_of_buffer(const SafetensorsFile& file, const std::string& name,
                            const ModelConfig& model) {
  const bool is_mask = !name.ends_with(kFrequencies) && !name.ends_with(kMaskedBias);
  const Type type = file.type(name);
  if (!is_mask && !is_floating(type.dtype)) {
    return fmt::format("is {}, where floating numbers are expected", type.str());
  }
  const HostTensor tensor = file.read(name);
  if (is_mask) return fault_of_mask(tensor);
  return name.ends_with(kFrequencies) ? fault_of_frequencies(tensor, model)
                                      : fault_of_masked_bias(tensor);
}

bool hold_same(const PlacedTensor& a, const PlacedTensor& b, std::uint64_t most_bytes) {
  const Type one = a.file.type(a.name), other = b.file.type(b.name);
  if (one.shape != other.shape) return false;
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;  // elements
  const auto part_of = [](const PlacedTensor& from, DType dtype, std::int64_t at, std::int64_t n) {
    HostTensor out = HostTensor::zeros(dtype, {n});
    const auto before = static_cast<std::uint64_t>(at) * size_of(dtype);
    from.file.read_part(*from.file.find(from.name), before, out.bytes);
    return out;
  };
  const auto wide = [](const HostTensor& part) {
    return is_floating(part.dtype) ? as_dtype(part, DType::kF64) : part;
  };
  const std::int64_t count = one.shape.product();
  for (std::int64_t at = 0; at < count; at += kAtOnce) {
    if (static_cast<std::uint64_t>(at) * size_of(one.dtype) >= most_bytes) break;
    const std::int64_t n = std::min(kAtOnce, count - at);
    const HostTensor left = part_of(a, one.dtype, at, n), right = part_of(b, other.dtype, at, n);
    const bool is_same = one.dtype == other.dtype ? left.bytes == right.bytes
                                                  : wide(left).bytes == wide(right).bytes;
    if (!is_same) return false;
  }
  return true;
}

}  // namespace tracestep
