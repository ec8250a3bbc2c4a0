// AdamW with 8-bit moments, and the conversion of these codes alone. Each block of 128 consecutive
// elements is updated in float32, then searched for its largest magnitudes, then rounded.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "ops/adamw_groups.h"
#include "ops/moment_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/adamw_8bit.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/updates-inl.h"

HWY_BEFORE_NAMESPACE();
#define TRACESTEP_FUNCTORS_NAMESPACE tracestep::cpu::HWY_NAMESPACE::functors
#include "ops/scalar/moment_codes.h"

namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

using functors::FirstMoment;
using functors::SecondMoment;

constexpr auto kBlock = static_cast<std::size_t>(kCodedBlock);
static_assert(kTile % kCodedBlock == 0 && kCodedBlock % kLanes == 0);

using DCode = hn::Rebind<std::uint8_t, D>;

// The moments of a block, their codes, and the noise that rounds them; 0 after the tensor's end.
struct Block {
  alignas(64) float m[kBlock], v[kBlock];
  alignas(64) std::uint32_t noise[kBlock];
  alignas(64) std::uint8_t m_codes[kBlock], v_codes[kBlock];
};

HWY_INLINE U load_codes(const std::uint8_t* codes) {
  return {hn::PromoteTo(DU(), hn::LoadU(DCode(), codes))};
}

template <class Moment>
HWY_INLINE void decode(const std::uint8_t* codes, float scale, float* to) {
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    store(functors::MomentFromCode<Moment>()(load_codes(codes + i), splat(scale)), to + i);
  }
}

// Writes the codes of a block's moments, rounded by `noise`, and returns their scale.
template <class Moment>
HWY_INLINE float encode(const float* x, const std::uint32_t* noise, std::uint8_t* codes) {
  const DU du;
  auto most = hn::Zero(du);
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    most = hn::Max(most, bits(abs(load(x + i))).v);
  }
  const std::uint32_t scale = functors::MomentScale()(hn::GetLane(hn::MaxOfLanes(du, most)));
  const V inverse = splat(std::bit_cast<float>(functors::MomentScale::inverse(scale)));
  constexpr int kShift = Moment::kSigned ? 0 : 16;  // each moment has its half of the noise
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    const U random{hn::ShiftRight<kShift>(hn::Load(du, noise + i))};
    const U code = functors::MomentCode<Moment>()(load(x + i), inverse, random);
    hn::StoreU(hn::TruncateTo(DCode(), code.v), DCode(), codes + i);
  }
  return std::bit_cast<float>(scale);
}

// Operands p, grad, m, v, m_scale, v_scale of one tensor, and the results for all but grad.
struct Tensor {
  std::span<const TensorRef> in, out;
  TensorRef shadow = {};
};

// Weights and gradients of a tile or block, and where new weights go; copies pad a short block.
struct Weights {
  const float *p, *g;
  float* p_new;
};

HWY_INLINE void update_block(const Factors& f, bool rounds_weight, const Weights& w, Block& b) {
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    const V p = load(w.p + i), g = load(w.g + i);
    const U noise = noise_of(f, p, g);
    hn::Store(noise.v, DU(), b.noise + i);
    const auto r = updated(f, p, g, load(b.m + i), load(b.v + i));
    store(rounds_weight ? rounded_weight(r.parameter, noise) : r.parameter, w.p_new + i);
    store(r.m, b.m + i);
    store(r.v, b.v + i);
  }
}

// Loads and stores block `index` of the coded moments of a tensor, of which `n` elements count.
class Moments {
 public:
  Moments(const Tensor& tensor, std::int64_t index, std::size_t n)
      : tensor_(tensor), index_(index), n_(n) {}

  void load(Block& b) const {
    for (std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      std::uint8_t* const codes = i == 0 ? b.m_codes : b.v_codes;
      std::memcpy(codes, old_codes(i), n_);
      std::memset(codes + n_, 0, kBlock - n_);
    }
    decode<FirstMoment>(b.m_codes, old_scale(0), b.m);
    decode<SecondMoment>(b.v_codes, old_scale(1), b.v);
  }

  void store(Block& b) const {
    put(0, b.m_codes, encode<FirstMoment>(b.m, b.noise, b.m_codes));
    put(1, b.v_codes, encode<SecondMoment>(b.v, b.noise, b.v_codes));
  }

  // Writes the old codes and scales as results, which may have storage of their own.
  void keep() const {
    for (std::size_t i : {std::size_t{0}, std::size_t{1}}) put(i, old_codes(i), old_scale(i));
  }

 private:
  const std::uint8_t* old_codes(std::size_t i) const {
    return tensor_.in[2 + i].as<const std::uint8_t>() + index_ * kCodedBlock;
  }
  float old_scale(std::size_t i) const { return tensor_.in[4 + i].as<const float>()[index_]; }

  void put(std::size_t i, const std::uint8_t* codes, float scale) const {
    const TensorRef &to = tensor_.out[1 + i], &scales = tensor_.out[3 + i];
    if (to.data != nullptr) {
      std::memmove(to.as<std::uint8_t>() + index_ * kCodedBlock, codes, n_);
    }
    if (scales.data != nullptr) scales.as<float>()[index_] = scale;
  }

  const Tensor& tensor_;
  const std::int64_t index_;
  const std::size_t n_;
};

// Updates a tile of whole blocks and, at the end of the tensor, a short one.
void update_tile(const Factors& f, const Tensor& tensor, std::int64_t begin, std::int64_t n,
                 const Weights& w) {
  Block b;
  const bool rounds_weight = f.rounds_weight && tensor.in[0].dtype == DType::kBF16;
  for (std::int64_t i = 0; i < n; i += kCodedBlock) {
    const auto count = static_cast<std::size_t>(std::min(kCodedBlock, n - i));
    const Moments moments(tensor, (begin + i) / kCodedBlock, count);
    moments.load(b);
    if (count == kBlock) {
      update_block(f, rounds_weight, {w.p + i, w.g + i, w.p_new + i}, b);
    } else {
      alignas(64) float p[kBlock] = {}, g[kBlock] = {};
      std::copy_n(w.p + i, count, p);
      std::copy_n(w.g + i, count, g);
      update_block(f, rounds_weight, {p, g, p}, b);
      std::copy_n(p, count, w.p_new + i);
    }
    moments.store(b);
  }
}

void keep_tile(const Tensor& tensor, std::int64_t begin, std::int64_t n, const Weights& w) {
  if (w.p != w.p_new) std::copy_n(w.p, n, w.p_new);
  for (std::int64_t i = 0; i < n; i += kCodedBlock) {
    const auto count = static_cast<std::size_t>(std::min(kCodedBlock, n - i));
    Moments(tensor, (begin + i) / kCodedBlock, count).keep();
  }
}

void update_tensor(const KernelCall& call, const Tensor& tensor, const Factors& factors,
                   bool apply) {
  const Operand p(tensor.in[0]), g(tensor.in[1]);
  const TensorRef& result = tensor.out[0];
  for_tiles(call, tensor.in[0].count(), [&](std::int64_t begin, std::int64_t n) {
    Tile p_tile, g_tile, out;
    const Weights w{read(p, begin, n, p_tile), read(g, begin, n, g_tile),
                    result.data != nullptr ? destination(result, begin, out) : out.data};
    apply ? update_tile(factors, tensor, begin, n, w) : keep_tile(tensor, begin, n, w);
    if (result.data != nullptr) finish(result, begin, n, out);
    if (tensor.shadow.data == nullptr) return;
    const auto offset = begin * static_cast<std::int64_t>(size_of(tensor.shadow.dtype));
    from_floats(w.p_new, n, tensor.shadow.dtype, tensor.shadow.as<std::byte>() + offset);
  });
}

void adamw_8bit_kernel(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const AdamwGroups groups = coded_adamw_groups(call.attrs, in.size());
  const Factors factors = factors_of(
      call, in[0], in[1], groups.scaled ? &in[groups.scale()] : nullptr, &in[groups.step_count()]);
  const bool apply = applies(groups.guarded ? &in[groups.apply()] : nullptr);
  for (std::size_t t = 0; t < groups.count; ++t) {
    Tensor tensor{in.subspan(groups.first_input(t), 6), out.subspan(groups.first_output(t), 5)};
    if (groups.shadowed) tensor.shadow = out[groups.first_output(t) + 5];
    update_tensor(call, tensor, factors, apply);
  }
}

// --- conversion of codes -----------------------------------------------------------------------
// Calls f(begin, n) for the blocks of a tensor, from element `begin` on; the last may be shorter.
template <class F>
void for_coded_blocks(const KernelCall& call, std::int64_t count, const F& f) {
  for_tiles(call, count, [&](std::int64_t begin, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kCodedBlock) {
      f(begin + i, std::min(kCodedBlock, n - i));
    }
  });
}

template <class Moment>
void make_codes(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const Operand x(in[0]), weight(in[1]), gradient(in[2]);
  Factors f{};
  f.count = scalar_of(in[3]);
  for_coded_blocks(call, in[0].count(), [&](std::int64_t begin, std::int64_t n) {
    Tile from[3];
    alignas(64) float whole[3][kBlock] = {};
    for (std::size_t k = 0; k < 3; ++k) {
      const Operand& operand = k == 0 ? x : k == 1 ? weight : gradient;
      std::copy_n(read(operand, begin, n, from[k]), n, whole[k]);
    }
    Block b;
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      hn::Store(noise_of(f, load(whole[1] + i), load(whole[2] + i)).v, DU(), b.noise + i);
    }
    const float scale = encode<Moment>(whole[0], b.noise, b.m_codes);
    if (out[0].data != nullptr) std::copy_n(b.m_codes, n, out[0].as<std::uint8_t>() + begin);
    if (out[1].data != nullptr) out[1].as<float>()[begin / kCodedBlock] = scale;
  });
}

template <class Moment>
void read_codes(const KernelCall& call) {
  const TensorRef &codes = call.inputs[0], &scales = call.inputs[1], &x = call.outputs[0];
  for_coded_blocks(call, codes.count(), [&](std::int64_t begin, std::int64_t n) {
    Block b;
    std::copy_n(codes.as<const std::uint8_t>() + begin, n, b.m_codes);
    std::fill_n(b.m_codes + n, kCodedBlock - n, std::uint8_t{0});
    decode<Moment>(b.m_codes, scales.as<const float>()[begin / kCodedBlock], b.m);
    std::copy_n(b.m, n, x.as<float>() + begin);
  });
}

void moment_codes_kernel(const KernelCall& call) {
  call.attrs.flag("first") ? make_codes<FirstMoment>(call) : make_codes<SecondMoment>(call);
}

void from_moment_codes_kernel(const KernelCall& call) {
  call.attrs.flag("first") ? read_codes<FirstMoment>(call) : read_codes<SecondMoment>(call);
}

constexpr NamedKernel kKernels[] = {{"adamw_8bit", adamw_8bit_kernel},
                                    {"moment_codes", moment_codes_kernel},
                                    {"from_moment_codes", from_moment_codes_kernel}};

}  // namespace

std::span<const NamedKernel> adamw_8bit_kernels() {
  return kKernels;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(adamw_8bit_kernels);

void add_adamw_8bit_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(adamw_8bit_kernels)()) {
    table.add(k.op, k.kernel);
  }
}

}  // namespace tracestep::cpu
#endif
