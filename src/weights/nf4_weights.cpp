#include "weights/nf4_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/shares.h"
#include "ops/nf4_codes.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

// Returns the index of the sorted value that is nearest to `x`; between two, of the smaller.
template <std::size_t N>
std::uint8_t nearest(const std::array<float, N>& values, float x) {
  const auto above = std::ranges::lower_bound(values, x);
  if (above == values.begin()) return 0;
  const auto index = static_cast<std::size_t>(above - values.begin());
  if (index == N) return static_cast<std::uint8_t>(N - 1);
  const bool is_above = values[index] - x < x - values[index - 1];
  return static_cast<std::uint8_t>(is_above ? index : index - 1);
}

constexpr std::int64_t kBlocksAtOnce =
    1024;  // are widened; with fewer, threads take longer to start
constexpr std::array<float, 256> kDynamic = std::to_array(DynamicValues().at);

// For each code but 0 the smallest number that is nearer to its value than to the one before. The
// test, `above - x < x - below` in float32, turns true once as x grows.
std::array<float, 15> first_of_codes() {
  std::array<float, 15> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float below = kNf4Values[i], above = kNf4Values[i + 1];
    float x = (above + below) / 2.0F;
    while (above - x < x - below) x = std::nextafter(x, below);
    while (!(above - x < x - below)) x = std::nextafter(x, above);
    out[i] = x;
  }
  return out;
}

// Writes the codes of a block, two in a byte; returns its largest magnitude.
float code_block(const float* x, std::uint8_t* codes) {
  static const std::array<float, 15> firsts = first_of_codes();
  float most = 0.0F;
  for (std::int64_t i = 0; i < kNf4Block; ++i) most = std::max(most, std::abs(x[i]));
  float scaled[kNf4Block];
  std::int32_t code[kNf4Block] = {};
  for (std::int64_t i = 0; i < kNf4Block; ++i) scaled[i] = most > 0.0F ? x[i] / most : 0.0F;
  for (const float first : firsts) {
    for (std::int64_t i = 0; i < kNf4Block; ++i) code[i] += scaled[i] >= first ? 1 : 0;
  }
  for (std::int64_t i = 0; i < kNf4Block; i += 2) {
    codes[i / 2] = static_cast<std::uint8_t>(code[i] << 4 | code[i + 1]);
  }
  return most;
}

// Writes the largest magnitudes and the codes of `count` blocks of the weight from `first` on.
void code_blocks(const TensorView& weight, std::int64_t first, std::int64_t count, float* most,
                 std::uint8_t* codes) {
  const std::size_t block_bytes = kNf4Block * size_of(weight.dtype);
  const auto bytes = weight.bytes.subspan(static_cast<std::size_t>(first) * block_bytes,
                                          static_cast<std::size_t>(count) * block_bytes);
  const HostTensor wide = as_dtype({weight.dtype, {count * kNf4Block}, bytes}, DType::kF32);
  const float* x = wide.as<float>().data();
  for (std::int64_t i = 0; i < count; ++i) {
    most[i] = code_block(x + i * kNf4Block, codes + (first + i) * kNf4Block / 2);
  }
}

}  // namespace

Nf4Weights to_nf4(const TensorView& weight) {
  const std::int64_t count = weight.count();
  Shape pairs = weight.shape;
  pairs[pairs.rank() - 1] /= 2;
  Nf4Weights out{
      HostTensor::zeros(DType::kU8, pairs), HostTensor::zeros(DType::kU8, {nf4_blocks(count)}),
      HostTensor::zeros(DType::kF32, {nf4_groups(count)}), HostTensor::zeros(DType::kF32, {1})};
  const auto codes = out.codes.as<std::uint8_t>(), magnitudes = out.magnitudes.as<std::uint8_t>();
  const auto scales = out.scales.as<float>();
  std::vector<float> most(magnitudes.size());
  in_shares(std::ssize(most), kBlocksAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; block += kBlocksAtOnce) {
      const std::int64_t some = std::min(kBlocksAtOnce, end - block);
      code_blocks(weight, block, some, &most[static_cast<std::size_t>(block)], codes.data());
    }
  });
  double sum = 0.0;
  for (const float m : most) sum += static_cast<double>(m);
  const auto offset =
      static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(most.size(), 1)));
  out.offset.as<float>()[0] = offset;
  for (std::size_t block = 0; block < most.size(); ++block) {
    float& scale = scales[block / kNf4Group];
    scale = std::max(scale, std::abs(most[block] - offset));
  }
  for (std::size_t block = 0; block < most.size(); ++block) {
    const float scale = scales[block / kNf4Group];
    magnitudes[block] = nearest(kDynamic, scale > 0.0F ? (most[block] - offset) / scale : 0.0F);
  }
  return out;
}

namespace {

// Returns how many blocks of a weight share one scale, from its numbers of scales and blocks.
std::int64_t group_of(std::int64_t scales, std::int64_t blocks) {
  return scales == ceil_div(blocks, kNf4Group) ? kNf4Group
                                               : blocks / std::max<std::int64_t>(scales, 1);
}

}  // namespace

std::optional<HostTensor> with_shape(const HostTensor& part, const Shape& to, std::int64_t blocks) {
  HostTensor out = part;
  out.shape = to;
  if (part.count() == to.product()) return out;
  const std::int64_t from_group = group_of(part.count(), blocks),
                     to_group = group_of(to.product(), blocks);
  const auto holds = [&](std::int64_t count, std::int64_t group) {
    return group > 0 && count == ceil_div(blocks, group) && kNf4Group % group == 0;
  };
  if (part.dtype == DType::kU8 || !holds(part.count(), from_group) ||
      !holds(to.product(), to_group)) {
    return std::nullopt;
  }
  const std::size_t size = size_of(part.dtype);
  out.bytes.resize(static_cast<std::size_t>(to.product()) * size);
  for (std::int64_t i = 0; i < to.product(); ++i) {
    const auto from = static_cast<std::size_t>(i * to_group / from_group) * size;
    std::memcpy(out.bytes.data() + static_cast<std::size_t>(i) * size, part.bytes.data() + from,
                size);
  }
  return out;
}

HostTensor from_nf4(const Nf4Weights& parts) {
  HostTensor out =
      HostTensor::zeros(DType::kF32, coded_shape({parts.codes.dtype, parts.codes.shape}));
  const auto codes = parts.codes.as<std::uint8_t>();
  const auto magnitudes = parts.magnitudes.as<std::uint8_t>();
  const auto scales = parts.scales.as<float>();
  const std::int64_t blocks = std::ssize(magnitudes), group = group_of(std::ssize(scales), blocks);
  const float offset = parts.offset.as<float>()[0];
  const auto w = out.as<float>();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t block = 2 * i / kNf4Block;
    const float m =
        kDynamic[magnitudes[block]] * scales[block / static_cast<std::size_t>(group)] + offset;
    w[2 * i] = kNf4Values[codes[i] >> 4] * m;
    w[2 * i + 1] = kNf4Values[codes[i] & 15] * m;
  }
  return out;
}

Shape coded_shape(const Type& codes) {
  Shape out = codes.shape;
  out[out.rank() - 1] *= 2;
  return out;
}

bool is_nf4(const WholeTensors& tensors, const std::string& name) {
  return tensors.has(name + std::string(kNf4Codes));
}

void set_nf4(const WholeTensors& to, const std::string& name, const TensorView& weight) {
  const Nf4Weights parts = to_nf4(weight);
  const auto set = [&](std::string_view what, const HostTensor& value) {
    const std::string part = name + std::string(what);
    const Type type = to.type(part);
    const auto shaped = value.shape == type.shape
                            ? value
                            : with_shape(value, type.shape, nf4_blocks(weight.count())).value();
    to.set(part, type.dtype == value.dtype ? shaped : as_dtype(shaped, type.dtype));
  };
  set(kNf4Codes, parts.codes);
  set(kNf4Magnitudes, parts.magnitudes);
  set(kNf4Scales, parts.scales);
  set(kNf4Offset, parts.offset);
}

std::string weight_of_codes(std::string_view name) {
  return name.ends_with(kNf4Codes) ? std::string(name.substr(0, name.size() - kNf4Codes.size()))
                                   : std::string();
}

std::string_view weight_of_part(std::string_view name) {
  for (const std::string_view part : {kNf4Codes, kNf4Magnitudes, kNf4Scales, kNf4Offset}) {
    if (name.ends_with(part)) return name.substr(0, name.size() - part.size());
  }
  return {};
}

bool is_part_of_nf4(std::string_view name) {
  return name.ends_with(kNf4Magnitudes) || name.ends_with(kNf4Scales) || name.ends_with(kNf4Offset);
}

}  // namespace tracestep
