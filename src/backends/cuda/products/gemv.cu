// gemv: prepares and launches its kernel (gemv.cuh).
#include "backends/cuda/products/gemv.cuh"

#include "backends/cuda/kernels.h"
#include "ops/gemv.h"

namespace tracestep::cuda {
namespace {

using namespace gemv;

constexpr int kHopper = 90;
// The shared memory of a block, of which a multiprocessor holds two: while one block's ring is
// emptied, a block of the next product fills its own.
constexpr int kBlockBytes = 112 << 10;
// The shared memory of a block without a ring, for x, scale and shift, and for the sums.
constexpr int kDirectBytes = static_cast<int>(kMostGemvBytes) + (20 << 10);
constexpr int kMostStages = 16;

Norm norm_named(const std::string& name) {
  if (name == "rms") return Norm::kRms;
  return name == "layer" ? Norm::kLayer : Norm::kNone;
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_erf") return Activation::kGeluErf;
  return name == "relu" ? Activation::kRelu : Activation::kNone;
}

template <class T>
int round_of_warp() {
  return kWarp * kPack<T>;
}

template <class T>
void share_rows(GemvArgs& a, int shares) {
  a.shares = shares;
  a.share =
      static_cast<int>(ceil_div(ceil_div(a.k, shares), round_of_warp<T>())) * round_of_warp<T>();
}

// Divides the units among `blocks` blocks, and returns that number. Sets most_rows, the most rows
// of a block, by which it takes shared memory for sums.
std::int64_t use_blocks(GemvArgs& a, std::int64_t blocks) {
  a.most_rows = static_cast<int>(ceil_div(a.units, blocks)) * a.rows_of_unit();
  return blocks;
}

// Returns how many stages each warp's ring has room for, at most kMostStages.
template <class T>
int stages_of(GemvArgs a) {
  a.stages = 0;
  const int per_stage = kWarps * (a.share * static_cast<int>(sizeof(T)) + 8);
  const int free_bytes = std::max(kBlockBytes - SharedPlan<T>(a).bytes - 128, 0);
  return std::min(free_bytes / per_stage, kMostStages);
}

// Returns how many blocks run: one for each multiprocessor, or more if a block's sums do not fit.
std::int64_t blocks_of(const GemvArgs& a, int multiprocessors) {
  constexpr std::int64_t kMostSums = 4096;  // the most sums that a block keeps
  const std::int64_t sums = a.units * a.rows_of_unit() * a.shares;
  return std::min(a.units, ceil_div(sums, kMostSums * multiprocessors) * multiprocessors);
}

// Cuts rows into shares: so many that no warp is idle, and so short that a ring has several stages.
// The order of additions depends on the shares, so these are planned alike on every card.
template <class T>
void plan_shares(GemvArgs& a) {
  constexpr int kMultiprocessors = 132, kEnoughStages = 3, kMostBytes = 4096;
  const auto wants_more = [&] {
    if (a.share * static_cast<int>(sizeof(T)) > kMostBytes) return true;
    if (a.k < 2 * a.shares * round_of_warp<T>()) return false;
    const std::int64_t shares = a.units * a.rows_of_unit() * a.shares;
    return shares < kMultiprocessors * kWarps || stages_of<T>(a) < kEnoughStages;
  };
  for (int shares = 1; shares <= kWarps; shares *= 2) {
    share_rows<T>(a, shares);
    use_blocks(a, blocks_of(a, kMultiprocessors));
    if (!wants_more()) return;
  }
}

// Plans a block per multiprocessor if it has rings, else enough blocks to hide loads' latency.
template <class T>
LaunchSize plan_blocks(GemvArgs& a, int multiprocessors, bool has_copies) {
  constexpr std::int64_t kDirectBlocks = 8;
  std::int64_t blocks = use_blocks(a, blocks_of(a, multiprocessors));
  const int rounds = static_cast<int>(ceil_div(a.most_rows, kWarps / a.shares));
  const int stages = std::min(stages_of<T>(a), rounds);
  a.stages = has_copies && a.as_packs && (stages >= 2 || stages == rounds) ? stages : 0;
  if (a.stages == 0) {
    blocks = use_blocks(a, std::min(a.units, std::max(blocks, kDirectBlocks * multiprocessors)));
  }
  return {.blocks = static_cast<unsigned>(blocks),
          .threads = kThreads,
          .shared_bytes = static_cast<unsigned>(SharedPlan<T>(a).bytes)};
}

template <class T>
class Gemv final : public PreparedKernel {
 public:
  Gemv(const KernelSpec& spec, const CudaStream& stream)
      : at_(spec.attrs), args_(args_of(spec)), stream_(stream) {
    const bool has_copies = stream.compute_capability >= kHopper;
    plan_shares<T>(args_);
    size_ = plan_blocks<T>(args_, stream.multiprocessors, has_copies);
    check_cuda(cudaFuncSetAttribute(gemv_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    has_copies ? kBlockBytes : kDirectBytes));
  }

  void launch(const LaunchOperands& operands, const LaunchContext&) override {
    GemvArgs a = args_;
    const auto in = [&](int i) -> const void* {
      return i < 0 ? nullptr : operands.inputs[static_cast<std::size_t>(i)];
    };
    a.x = in(0);
    a.weights = in(1);
    a.scale = in(at_.scale);
    a.shift = in(at_.shift);
    a.bias = in(at_.bias);
    a.c = in(at_.c);
    a.y = operands.outputs[0];
    if (a.y == nullptr) return;
    check_cuda(launch_kernel(stream_.launch_stream(), size_, gemv_kernel<T>, a));
  }

 private:
  static void check_cuda(cudaError_t status) {
    if (status != cudaSuccess) [[unlikely]]
      throw DeviceError("cuda", "gemv", cudaGetErrorString(status));
  }

  static GemvArgs args_of(const KernelSpec& spec) {
    const GemvOperands at(spec.attrs);
    const auto is_aligned_operand = [&](int i) {
      return i < 0 || spec.inputs[static_cast<std::size_t>(i)].alignment >= 16;
    };
    GemvArgs a{};
    a.units = spec.outputs[0].shape.back();
    a.gate_distance = spec.attrs.flag("gated") ? a.units : 0;
    a.k = static_cast<int>(spec.inputs[0].shape.back());
    a.norm = norm_named(spec.attrs.text("norm"));
    a.activation = activation_named(spec.attrs.text("activation"));
    a.eps = static_cast<float>(spec.attrs.real("eps"));
    a.offset = static_cast<float>(spec.attrs.real("offset"));
    a.early = spec.attrs.flag("early");
    a.as_packs = is_aligned_operand(0) && is_aligned_operand(1) && is_aligned_operand(at.scale) &&
                 is_aligned_operand(at.shift);
    // This names the operands that there are, for the plan of shared memory; launch() has the
    // addresses.
    a.scale = at.scale < 0 ? nullptr : &spec;
    a.shift = at.shift < 0 ? nullptr : &spec;
    return a;
  }

  const GemvOperands at_;
  GemvArgs args_;
  LaunchSize size_;
  const CudaStream& stream_;
};

std::unique_ptr<PreparedKernel> prepare_gemv(KernelSpec spec, const LaunchContext& context) {
  const CudaStream& stream = stream_of(context);
  switch (spec.inputs[0].dtype) {
    case DType::kBF16: return std::make_unique<Gemv<BF16>>(spec, stream);
    case DType::kF16: return std::make_unique<Gemv<F16>>(spec, stream);
    default: return std::make_unique<Gemv<float>>(spec, stream);
  }
}

}  // namespace

void add_gemv_kernel(KernelTable& table) {
  table.add_planned("gemv", prepare_gemv);
}

}  // namespace tracestep::cuda
