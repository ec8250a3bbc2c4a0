#include "lab/predict/kernel_work.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "analysis/cost.h"
#include "base/indexed.h"
#include "base/integers.h"
#include "lab/predict/attention_tiles.h"
#include "lab/predict/reuse.h"
#include "planning/cpu_plans.h"

namespace tracestep {
namespace {

// Returns the order of an operand's elements as a letter: 'd' dense, 's' side by side in the last
// dimension, 'x' neither.
char order_of(const Value& value) {
  const Strides& strides = value.layout.strides;
  if (is_contiguous(value.type.shape, strides)) return 'd';
  return strides.rank() > 0 && strides.back(0) <= 1 ? 's' : 'x';
}

// Returns the letter of the index along which the elements of a matrix are adjacent. `indices`: the
// letters of both indices, as the product reads the matrix: "mk".
char fastest_index(const Value& value, bool transposed, const char* indices) {
  const bool is_last = (value.layout.strides.back(0) == 1) != transposed;
  return indices[is_last ? 1 : 0];
}

// True if a reduction goes over rows, so that a result is left for each column: the last axis,
// whose elements stand side by side, is not among those that are reduced.
bool sums_columns(const Program& program, const Node& node) {
  const bool has_axes = node.attrs.find("axes") != nullptr;
  const Shape& from = program.type(node.inputs[0]).shape;
  if (!has_axes || from.empty() || from.back() == 1) return false;
  return std::ranges::none_of(node.attrs.ints("axes"), [&](std::int64_t axis) {
    return axis == -1 || axis == from.rank() - 1;
  });
}

bool reads_transposed(const Node& node, std::string_view attr) {
  return node.op->find_attr(attr) != nullptr && node.attrs.flag(attr);
}

// True if the product has forms for either order of its operands; else both are read along K.
bool has_orders(const Node& node) {
  return node.op->find_attr("transpose_a") != nullptr;
}

// True if the node is a product that ends with SwiGLU, or with its gradients.
bool is_gated(const Node& node) {
  return node.op->name.starts_with("matmul_swiglu");
}

// True if the rows of one product are added to tensors, of which there may be several.
bool is_of_added_rows(const Node& node) {
  return node.op->name == "matmul_add_rows" || node.op->name == "scaled_matmul_add";
}

// Returns the op whose measured times stand for this one's, and how many first operands both share.
std::pair<std::string_view, std::size_t> op_timed(const Node& node) {
  if (node.op->name == "matmul_add_rows") return {"matmul_add", 3};
  if (node.op->name == "scaled_matmul_add") return {"scaled_matmul", 4};
  // A bias is a row.
  if (node.op->product && node.inputs.size() == 3) return {"matmul", 2};
  return {node.op->name, node.inputs.size()};
}

// Returns the number of rows of a product; of added rows, those of all results.
std::int64_t height_of(const Program& program, const Node& node) {
  if (!is_of_added_rows(node)) return program.type(node.outputs[0]).shape.back(1);
  std::int64_t out = 0;
  for (const ValueId id : node.outputs) out += program.type(id).shape[0];
  return out;
}

// Returns the depth K of a product: how many terms each element of the result sums.
std::int64_t depth_of(const Program& program, const Node& node) {
  return program.type(node.inputs[0]).shape.back(reads_transposed(node, "transpose_a") ? 1 : 0);
}

// Returns the number of rows, each of which begins and ends with work of its own: it counts where
// rows are short. A sum or maximum has one row per result, on a CPU one per part of the reduction.
std::int64_t rows_of(const Program& program, const Node& node, const DeviceTraits& traits) {
  const Shape& from = program.type(node.inputs[0]).shape;
  if (from.empty() || from.back() == 0) return 0;
  if (node.attrs.find("axes") == nullptr) return from.product() / from.back();
  const std::int64_t results = program.type(node.outputs[0]).shape.product();
  const bool has_parts = traits.shares_kernels_among_threads() && results > 0;
  return results * (has_parts ? reduction_parts(results, from.product() / results) : 1);
}

bool is_on_host(const BufferPlan& buffer_plan, ValueId id) {
  const Buffer* buffer = buffer_plan.buffer(id);
  return buffer != nullptr && buffer->host_bytes > 0;
}

// Returns the ratio of the elements that whole register tiles compute to those of the result. A
// tile is as wide as the widest strip of any SIMD target, and a last one of few rows is less high.
double whole_tiles(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kRows = AttentionPlan::kTallestStrip;
  const std::int64_t rest = m % kRows;
  const std::int64_t rows = m - rest + (rest == 0 ? 0 : rest <= 4 ? 4 : rest <= 8 ? 8 : kRows);
  const std::int64_t columns = round_up(n, AttentionPlan::kWidestStrip);
  return static_cast<double>(rows) * static_cast<double>(columns) /
         (static_cast<double>(m) * static_cast<double>(n));
}

// Adds a CPU's efforts for a product that depend on its blocks: whole tiles, and packed operands.
void add_cpu_product(const Program& program, const Node& node, int threads, Efforts& amounts) {
  const Type& y = program.type(node.outputs[0]);
  const std::int64_t m = height_of(program, node), n = y.shape.back(0), k = depth_of(program, node);
  if (y.count() == 0 || k == 0) return;
  const bool adds = node.inputs.size() >= 3;
  const DType operands = program.type(node.inputs[0]).dtype;
  const std::int64_t batch_count = is_of_added_rows(node) ? 1 : y.count() / (m * n);
  const GemmPlan plan = plan_gemm(batch_count, m, n, k, operands, y.dtype, threads, adds);
  if (plan.is_vector) return;
  // The other threads wait for the one with the most blocks, or parts of the last ones.
  const std::int64_t parts = plan.tail_blocks(plan.jobs()) > 0 ? plan.tail_parts() : 1;
  const std::int64_t jobs = plan.jobs() * parts, turns = ceil_div(jobs, threads) * threads;
  const double rounds = static_cast<double>(turns) / static_cast<double>(jobs);
  const auto batch = static_cast<double>(plan.batch);
  at(amounts, Effort::kOperations) *= rounds * whole_tiles(plan.m, plan.n);
  const std::int64_t packings_of_a = plan.shares_a ? 1 : plan.blocks_n;
  const std::int64_t packings_of_b = plan.shares_b ? 1 : plan.blocks_m;
  at(amounts, Effort::kPackedA) = rounds * batch * static_cast<double>(m * k * packings_of_a);
  at(amounts, Effort::kPackedB) = rounds * batch * static_cast<double>(n * k * packings_of_b);
  at(amounts, Effort::kResults) = rounds * batch * static_cast<double>(m * n * plan.blocks_k);
}

// Adds a CPU's efforts for tiled attention: operations of whole register tiles, an exponential for
// each score, and the packed elements.
void add_cpu_attention(const Program& program, const Node& node, Efforts& amounts) {
  const bool is_grad = node.op->name == "flash_attention_grad";
  if (!is_grad && node.op->name != "flash_attention") return;
  const std::size_t q = is_grad ? 1 : 0;
  const AttentionSizes sizes =
      attention_sizes(program.type(node.inputs[q]), program.type(node.inputs[q + 1]));
  const AttentionTiles tiles = attention_tiles(sizes, node.attrs, is_grad);
  at(amounts, Effort::kOperations) *= tiles.scores_per_pair;
  at(amounts, Effort::kResults) = tiles.scores;
  at(amounts, Effort::kPackedA) = tiles.packed;
}

// Returns the part of a buffer that a cache of `size` bytes still has after `touched` other bytes.
// Caches forget gradually: part of the buffer is gone from half their size on.
double part_kept(double touched, std::int64_t size) {
  return size <= 0 ? 0.0 : std::clamp(1.5 - touched / static_cast<double>(size), 0.0, 1.0);
}

class Counting {
 public:
  Counting(const Program& program, const DeviceTraits& traits, const CacheSizes& caches)
      : program_(program),
        traits_(traits),
        caches_(caches),
        buffer_plan_(plan_buffers(program)),
        reuse_(buffer_plan_) {}

  std::vector<KernelWork> run() {
    std::vector<KernelWork> out;
    for (int pass = 0; pass < 2; ++pass) {
      out.clear();
      reuse_.restart();
      for (NodeId id = 0; id < std::ssize(program_.nodes); ++id) {
        reuse_.begin(id);
        if (launches(program_, program_.node(id))) out.push_back(work_of(id));
        reuse_.end(id);
      }
    }
    return out;
  }

 private:
  KernelWork work_of(NodeId id) {
    const Node& node = program_.node(id);
    KernelWork out{
        .node = id, .kernel = work_name(program_, node), .kernel_class = node.op->kernel_class};
    out.product = product_shape(program_, node);
    const Cost cost = cost_of(program_, node);
    std::int64_t inputs = 0, outputs = 0, elements = 0;
    for (ValueId v : node.inputs) inputs += program_.type(v).bytes();
    for (ValueId v : node.outputs) outputs += program_.type(v).bytes();
    for (ValueId v : node.outputs) elements += program_.type(v).count();
    // The share is below 1 for ops that read a part of their operands (rows of a table) or usually
    // leave what they might write as it is, above 1 for ops that read an operand twice.
    const auto share = [](std::int64_t moved, std::int64_t all) {
      return all > 0 ? static_cast<double>(moved) / static_cast<double>(all) : 0.0;
    };
    const double read = share(cost.bytes_read, inputs),
                 written = share(cost.bytes_written, outputs);
    for (ValueId v : node.inputs) add_bytes(v, read, out.amounts);
    for (ValueId v : node.outputs) add_bytes(v, written, out.amounts);
    out.host_bytes = bytes_over_link(program_, buffer_plan_, node);
    at(out.amounts, Effort::kLaunches) = 1;
    at(out.amounts, Effort::kOperations) =
        static_cast<double>(cost.flops > 0 ? cost.flops : elements);
    add_shape(node, out.amounts);
    if (is_gated(node)) out.parts = gated_parts(out);
    return out;
  }

  // Splits a gated product into the product alone and a SwiGLU kernel for the bytes that the
  // product does not move; the tensor between the two is in memory once.
  std::vector<KernelWork> gated_parts(const KernelWork& whole) const {
    const Node& node = program_.node(whole.node);
    const bool is_grad = node.inputs.size() == 3;
    const Type& x = program_.type(node.inputs[0]);
    const Shape& gate_up = program_.type(node.outputs[0]).shape;
    const std::string_view dtype = name_of(x.dtype);
    KernelWork product{
        .kernel = fmt::format("matmul {0},{0}>{0} {1}", dtype, is_grad ? "kn" : "kk"),
        .kernel_class = KernelClass::kGemm,
        .amounts = whole.amounts,
        .product = {x.shape[0], is_grad ? gate_up[1] / 2 : gate_up[1], x.shape[1]}};
    KernelWork gating{.kernel = is_grad ? fmt::format("swiglu_grad {0},{0},{0}>{0}", dtype)
                                        : fmt::format("swiglu {0},{0}>{0}", dtype)};
    at(gating.amounts, Effort::kLaunches) = 1;
    at(gating.amounts, Effort::kOperations) = static_cast<double>(gate_up.product()) / 2;
    at(gating.amounts, Effort::kMemoryBytes) =
        static_cast<double>(is_grad ? 2 * program_.type(node.outputs[0]).bytes()
                                    : program_.type(node.outputs[1]).bytes());
    return {std::move(product), std::move(gating)};
  }

  // Adds the efforts that depend on how the node's work is arranged, not on how much it is.
  void add_shape(const Node& node, Efforts& amounts) const {
    const KernelClass kind = node.op->kernel_class;
    if (kind == KernelClass::kReduction || kind == KernelClass::kAttention) {
      at(amounts, Effort::kRows) = static_cast<double>(rows_of(program_, node, traits_));
      if (traits_.shares_kernels_among_threads()) add_cpu_attention(program_, node, amounts);
    } else if (kind == KernelClass::kGemm && traits_.shares_kernels_among_threads()) {
      add_cpu_product(program_, node, std::max(1, traits_.threads), amounts);
    } else if (kind == KernelClass::kGemm) {
      at(amounts, Effort::kDepth) = static_cast<double>(depth_of(program_, node));
    }
  }

  void add_bytes(ValueId id, double part, Efforts& amounts) {
    const int buffer = buffer_plan_.buffer_of[static_cast<std::size_t>(id)];
    const double bytes = part * static_cast<double>(program_.type(id).bytes());
    if (buffer < 0 || bytes <= 0 || is_on_host(buffer_plan_, id)) return;
    const double touched = reuse_.touch(buffer, bytes);
    const double near = part_kept(touched, caches_.near_bytes);
    const double shared = std::max(near, part_kept(touched, caches_.shared_bytes));
    at(amounts, Effort::kNearBytes) += bytes * near;
    at(amounts, Effort::kSharedBytes) += bytes * (shared - near);
    at(amounts, Effort::kMemoryBytes) += bytes * (1.0 - shared);
  }

  const Program& program_;
  DeviceTraits traits_;
  CacheSizes caches_;
  BufferPlan buffer_plan_;
  Reuse reuse_;
};

}  // namespace

std::string work_name(const Program& program, const Node& node) {
  const auto [op, operands] = op_timed(node);
  std::string out = fmt::format("{} ", op);
  std::set<DType> named;
  for (ValueId v : std::span(node.inputs).first(operands)) {
    const DType dtype = program.type(v).dtype;
    const bool is_new = named.insert(dtype).second;
    const bool has_many = node.op->is_variadic() && !is_of_added_rows(node);
    if (has_many && !is_new) continue;  // many of the same, or of the same few
    out += fmt::format("{}{}", out.ends_with(' ') ? "" : ",", name_of(dtype));
  }
  const Type& result = program.type(node.outputs[0]);
  // Products of codes are measured with results in bfloat16.
  const bool is_of_codes = node.op->name == "scaled_matmul_add";
  out += fmt::format(">{}", name_of(is_of_codes ? DType::kBF16 : result.dtype));
  if (node.op->kernel_class == KernelClass::kGemm && has_orders(node)) {
    out += ' ';
    out +=
        fastest_index(program.value(node.inputs[0]), reads_transposed(node, "transpose_a"), "mk");
    out +=
        fastest_index(program.value(node.inputs[1]), reads_transposed(node, "transpose_b"), "kn");
    if (is_by_parts(node)) out += kByParts;
    return out + (result.shape.rank() > 2 ? " batched" : "");
  }
  if (node.op->kernel_class == KernelClass::kReduction && sums_columns(program, node)) {
    out += " columns";
  }
  std::string orders;
  for (ValueId v : node.inputs) orders += order_of(program.value(v));
  if (orders.find_first_not_of('d') != std::string::npos && !node.op->is_variadic()) {
    out += " " + orders;
  }
  return out;
}

ProductShape product_shape(const Program& program, const Node& node) {
  const Shape& y = program.type(node.outputs[0]).shape;
  if (node.op->kernel_class != KernelClass::kGemm || y.rank() > 2 || is_gated(node)) return {};
  return {.m = height_of(program, node), .n = y.back(0), .k = depth_of(program, node)};
}

double bytes_over_link(const Program& program, const BufferPlan& buffer_plan, const Node& node) {
  const auto on_host = [&](const std::vector<ValueId>& values) {
    double out = 0;
    for (ValueId v : values) {
      if (is_on_host(buffer_plan, v)) out += static_cast<double>(program.type(v).bytes());
    }
    return out;
  };
  return std::max(on_host(node.inputs), on_host(node.outputs));
}

std::vector<KernelWork> kernel_work(const Program& program, const DeviceTraits& traits,
                                    const CacheSizes& caches) {
  return Counting(program, traits, caches).run();
}

namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

// Returns the bytes of each level of cache; instruction caches are left out.
std::map<int, std::int64_t> levels(const std::filesystem::path& folder) {
  std::map<int, std::int64_t> out;
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path cache = folder / fmt::format("index{}", index);
    int level = 0;
    std::int64_t kib = 0;
    std::string type;
    std::ifstream(cache / "level") >> level;
    std::ifstream(cache / "size") >> kib;  // "1024K"
    std::ifstream(cache / "type") >> type;
    if (level > 0 && kib > 0 && type != "Instruction") out[level] = kib * kKiB;
  }
  return out;
}

}  // namespace

CacheSizes cache_sizes(const DeviceTraits& traits, const std::filesystem::path& root) {
  if (!traits.shares_kernels_among_threads()) return {.shared_bytes = 32 * kMiB};
  std::map<int, std::int64_t> found = levels(root / "sys/devices/system/cpu/cpu0/cache");
  const std::int64_t second = found.contains(2) ? found[2] : kMiB;
  const std::int64_t third = found.contains(3) ? found[3] : 8 * kMiB;
  return {second * std::max(1, traits.threads), third};
}

}  // namespace tracestep
