#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "base/integers.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "nn/scopes.h"
#include "ops/functions.h"
#include "ops/shared_attrs.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"
#include "passes/row_chunks.h"

namespace tracestep {
namespace {

constexpr std::int64_t kLeastRows = 1024;
// The ratio of a feed-forward's input to the inner tensor of one of its chunks, in elements.
constexpr std::int64_t kShareOfInput = 4;

// Returns the path of the feed-forward that a node is in, "layers.3.ffn"; empty: it is in none.
std::string_view ffn_of(const Node& node) {
  const std::string_view path = node.origin().path, layer = layer_of(path);
  if (layer.empty() || path.size() <= layer.size()) return {};
  const std::string_view inside = path.substr(layer.size() + 1);
  const std::string_view part = inside.substr(0, inside.find('.'));
  if (part != scope::kFeedForward) return {};
  return path.substr(0, layer.size() + 1 + part.size());
}

// The nodes of a feed-forward that run in one phase and work row by row, or sum over rows.
struct Region {
  std::string_view ffn;
  Phase phase = Phase::kForward;
  std::vector<NodeId> nodes = {};
  std::int64_t rows = 0, chunks = 1;

  // True if both are of one feed-forward and have equal chunks, so that one can read the other's.
  bool matches(const Region& other) const {
    return ffn == other.ffn && rows == other.rows && chunks == other.chunks;
  }
};

class ChunkFfn {
 public:
  ChunkFfn(const Program& program, std::int64_t chunks, bool adds_products)
      : program_(program),
        chunks_(chunks),
        adds_products_(adds_products),
        readers_(program),
        r_(program, "chunk_ffn"),
        region_of_(program.nodes.size(), nullptr),
        is_row_(program.values.size(), false) {
    find_varying();
    find_regions();
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) emit(static_cast<NodeId>(i));
    TRACESTEP_CHECK(waiting_.empty(), "chunk_ffn: {} nodes wait", waiting_.size());
    return is_cut_ ? remove_dead_nodes(r_.finish()) : program_;
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  const Type& type(ValueId id) const { return program_.type(id); }

  // --- the regions to cut -----------------------------------------------------------------------
  // Marks in `varies_` the values that depend on inputs; all others are the same for all rows.
  void find_varying() {
    varies_.assign(program_.values.size(), false);
    for (const ValueId id : program_.leaves) {
      varies_[at(id)] = program_.value(id).leaf == LeafKind::kInput;
    }
    for (const Node& n : program_.nodes) {
      const bool varies =
          std::ranges::any_of(n.inputs, [&](ValueId id) { return varies_[at(id)]; });
      for (const ValueId id : n.outputs) varies_[at(id)] = varies;
    }
  }

  // Finds the regions to cut. A region ends where another one begins. It runs as a whole, so a node
  // that reads its results through a node outside of the region is no part of it.
  void find_regions() {
    std::set<std::pair<std::string_view, Phase>> begun;
    std::vector<const Region*> behind(program_.values.size(), nullptr);
    Region* open = nullptr;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& n = program_.nodes[i];
      const std::string_view ffn = ffn_of(n);
      const Phase phase = n.origin().phase;
      const bool is_open = open != nullptr && open->ffn == ffn && open->phase == phase;
      const bool may_be =
          !ffn.empty() && n.epoch == 0 && (phase == Phase::kForward || phase == Phase::kBackward);
      if (may_be && !is_open && begun.emplace(ffn, phase).second) {
        open = &regions_.emplace_back(ffn, phase);
      }
      bool is_behind = false, reads_results = false, reads_others = false;
      for (const ValueId v : n.inputs) {
        is_behind = is_behind || (open != nullptr && behind[at(v)] == open);
        const bool is_result = open != nullptr && maker_region(v) == open;
        reads_results = reads_results || is_result;
        reads_others = reads_others || (varies_[at(v)] && !(is_result && is_row_[at(v)]));
      }
      // A node that reads rows of the region alone is a part of it, wherever it belongs.
      const bool is_end = reads_results && !reads_others && phase == open->phase && n.epoch == 0 &&
                          layer_of(n.origin().path) == layer_of(open->ffn);
      const bool is_own =
          is_end || (may_be && open != nullptr && open->ffn == ffn && open->phase == phase);
      const bool is_elementwise = n.op->fusion == Fusion::kElementwise || n.op->is_view();
      const bool is_row =
          is_own && !is_behind && works_by_rows(n, *open) && (ffn == open->ffn || is_elementwise);
      const bool is_sum = is_own && !is_behind && ffn == open->ffn && sums_rows(n, *open);
      const bool is_part = is_row || is_sum;
      if (is_part) {
        region_of_[i] = open;
        open->nodes.push_back(static_cast<NodeId>(i));
      }
      const bool is_late = is_behind || (is_part ? !is_row : reads_results);
      for (const ValueId v : n.outputs) {
        is_row_[at(v)] = is_row;
        if (is_late) behind[at(v)] = open;
      }
    }
    for (Region& region : regions_) region.chunks = chunks_of(region);
    for (Region& region : regions_) leave_out_whole(region);
  }

  const Region* maker_region(ValueId id) const {
    const NodeId maker = program_.value(id).producer;
    return maker == kNoNode ? nullptr : region_of_[at(maker)];
  }

  // Takes nodes out of the region: all, if it has one chunk; else nodes at its start (no products)
  // whose results are read whole: sums of gradients, which are written over an operand.
  void leave_out_whole(Region& region) {
    std::erase_if(region.nodes, [&](NodeId id) {
      const Node& n = node(id);
      const bool is_first = !n.op->product && std::ranges::none_of(n.inputs, [&](ValueId v) {
        return maker_region(v) == &region;
      });
      const bool is_whole = is_first && std::ranges::any_of(n.outputs, [&](ValueId v) {
                              return is_read_whole(v, region);
                            });
      if (region.chunks > 1 && !is_whole) return false;
      region_of_[at(id)] = nullptr;
      for (const ValueId v : n.outputs) is_row_[at(v)] = false;
      return true;
    });
  }

  static bool has_rows(const Type& type, std::int64_t rows) {
    return type.shape.rank() >= 2 && type.count() == rows * type.shape.back(0);
  }

  // True for products of rows with a weight, elementwise ops and views of rows; sets `region.rows`.
  bool works_by_rows(const Node& n, Region& region) const {
    const auto lead = std::ranges::find_if(n.inputs, [&](ValueId v) { return varies_[at(v)]; });
    if (lead == n.inputs.end() || (n.op->product && lead != n.inputs.begin())) return false;
    const Type& first = type(*lead);
    if (first.shape.rank() < 2 || first.shape.back(0) == 0) return false;
    const std::int64_t rows = region.rows > 0 ? region.rows : first.count() / first.shape.back(0);
    const auto has = [&](ValueId v) { return has_rows(type(v), rows); };
    if (!has(*lead) || !std::ranges::all_of(n.outputs, has)) return false;
    bool is_one = false;
    if (n.op->product) {
      const ProductAxes axes = axes_of(program_, n);
      is_one = axes.rows == first.shape.rank() - 2 && type(n.inputs[1]).shape.rank() == 2 &&
               std::none_of(lead + 1, n.inputs.end(), [&](ValueId v) { return varies_[at(v)]; });
    } else if (n.op->is_view()) {
      is_one = n.inputs.size() == 1 && keeps_rows(n);
    } else if (n.op->fusion == Fusion::kElementwise || n.op->only_converts) {
      is_one = std::ranges::all_of(n.inputs, [&](ValueId v) {
        return type(v).shape == first.shape || (type(v).shape.empty() && !varies_[at(v)]);
      });
    }
    if (is_one) region.rows = rows;
    return is_one;
  }

  // True for a view of the same rows in another shape.
  bool keeps_rows(const Node& n) const {
    const Value &from = program_.value(n.inputs[0]), &to = program_.value(n.outputs[0]);
    return keeps_order(program_, n) && from.type.shape.back(0) == to.type.shape.back(0);
  }

  // True for a product that sums over the rows of both operands (aᵀ·b), and a sum over all rows.
  bool sums_rows(const Node& n, const Region& region) const {
    const bool has =
        region.rows > 0 && n.outputs.size() == 1 && std::ranges::all_of(n.inputs, [&](ValueId v) {
          return varies_[at(v)] && has_rows(type(v), region.rows);
        });
    if (!has) return false;
    if (n.op->product && n.inputs.size() == 2) {
      const ProductAxes axes = axes_of(program_, n);
      return axes.summed[0] == 0 && axes.summed[1] == 0 && type(n.inputs[0]).shape.rank() == 2 &&
             type(n.inputs[1]).shape.rank() == 2;
    }
    return sums_columns(n);
  }

  // True for a node that sums each column over all rows, as for the gradient of a bias.
  bool sums_columns(const Node& n) const {
    if (n.op->find_attr(ops::kWideSum) == nullptr || n.attrs.flag("keepdims")) return false;
    return type(n.outputs[0]).shape == Shape{type(n.inputs[0]).shape.back(0)} &&
           n.attrs.ints("axes").rank() + 1 == type(n.inputs[0]).shape.rank();
  }

  std::int64_t chunks_of(const Region& region) const {
    if (region.rows < 2 || region.nodes.empty()) return 1;
    if (chunks_ > 0) return std::min(chunks_, region.rows);
    std::int64_t widest = 0, read = 0;  // of the products, and of what comes from outside
    for (const NodeId id : region.nodes) {
      for (const auto* values : {&node(id).inputs, &node(id).outputs}) {
        for (const ValueId v : *values) {
          if (!varies_[at(v)] || !has_rows(type(v), region.rows)) continue;
          const std::int64_t width = type(v).shape.back(0);
          const Region* from = maker_region(v);
          if (node(id).op->product) widest = std::max(widest, width);
          if (from == nullptr || from->ffn != region.ffn) read = std::max(read, width);
        }
      }
    }
    return std::clamp(ceil_div(kShareOfInput * widest, std::max<std::int64_t>(read, 1)),
                      std::int64_t{1}, std::max<std::int64_t>(region.rows / kLeastRows, 1));
  }

  // Emits the node; a region's chunks are emitted at its last node, and their readers after that.
  void emit(NodeId id) {
    const Region* region = region_of_[at(id)];
    if (region != nullptr) {
      if (region->nodes.back() != id) return;
      emit_region(*region);
      for (const NodeId waiting : std::exchange(waiting_, {})) emit(waiting);
      return;
    }
    const bool is_ready =
        std::ranges::all_of(node(id).inputs, [&](ValueId v) { return r_.has(v); });
    if (!is_ready) return waiting_.push_back(id);
    r_.copy(node(id));
  }

  void emit_region(const Region& region) {
    is_cut_ = true;
    std::map<ValueId, Val> totals;
    matrices_.clear();
    for (std::int64_t i = 0; i < region.chunks; ++i) {
      slices_.clear();
      for (const NodeId id : region.nodes) emit_part(region, node(id), i, totals);
    }
    for (const NodeId id : region.nodes) join_parts(node(id), totals);
  }

  void emit_part(const Region& region, const Node& n, std::int64_t chunk,
                 std::map<ValueId, Val>& totals) {
    const auto guard = r_.from(n);
    const bool is_sum = !is_row_[at(n.outputs[0])];
    std::vector<Val> operands;
    for (const ValueId v : n.inputs) operands.push_back(operand(region, n, v, chunk));
    if (is_sum) {
      Val& total = totals[n.outputs[0]];
      total = n.op->product
                  ? add_product(r_.builder(), n, std::move(operands), total, adds_products_)
                  : add_columns(n, operands[0], total);
    } else if (n.op->is_view()) {
      parts_[n.outputs[0]].push_back(operands[0]);
      if (is_read_whole(n.outputs[0], region)) {
        joined_[n.outputs[0]].push_back(written(n.inputs[0], operands[0], 1));
      }
    } else {
      const std::vector<Val> results = r_.builder().call(*n.op, operands, n.attrs);
      for (std::size_t i = 0; i < results.size(); ++i) {
        const ValueId v = n.outputs[i];
        parts_[v].push_back(results[i]);
        if (is_read_whole(v, region)) joined_[v].push_back(written(v, results[i], 0));
      }
    }
  }

  // Returns `part`, a chunk of value `id`, if the op that makes it can write into the joined value
  // and exactly `readers` nodes of regions read `id`, so that no other needs it; else a copy of it.
  Val written(ValueId id, Val part, std::ptrdiff_t readers) {
    const auto& writes = node(program_.value(id).producer).op->writes;
    const Type own = part.type();
    const bool fits =
        std::ranges::count_if(readers_.nodes[at(id)],
                              [&](NodeId reader) { return region_of_[at(reader)] != nullptr; }) ==
            readers &&
        writes && writes(program_.value(id).output_index, own, contiguous_strides(own.shape));
    return fits ? part : r_.builder().call1("copy", {part});
  }

  Val add_columns(const Node& n, Val rows, Val total) {
    Attrs attrs = n.attrs;
    attrs.set("axes", Dims{0});
    attrs.set(ops::kWideSum, true);
    const Val part = r_.builder().call(*n.op, {rows}, std::move(attrs)).front();
    return total ? ops::add(total, part) : part;
  }

  // Returns the chunk's rows of operand `id` as a matrix; the whole operand if it has no such rows.
  Val operand(const Region& region, const Node& reader, ValueId id, std::int64_t chunk) {
    const Region* from = maker_region(id);
    if (from != nullptr && is_row_[at(id)] && from->matches(region)) {
      return parts_[id][static_cast<std::size_t>(chunk)];
    }
    const Val whole = r_.map(id);
    const bool is_weight = reader.op->product && !varies_[at(id)];
    if (is_weight || !has_rows(type(id), region.rows)) return whole;
    Val &matrix = matrices_[id], &part = slices_[id];
    if (!matrix) matrix = ops::reshape(whole, {region.rows, type(id).shape.back(0)});
    if (!part) {
      const std::int64_t start = chunk_start(chunk, region.chunks, region.rows);
      const std::int64_t stop = chunk_start(chunk + 1, region.chunks, region.rows);
      part = ops::slice(matrix, 0, start, stop);
    }
    return part;
  }

  // Replaces the node's results that are read whole by sums over the chunks or assemblies of them.
  void join_parts(const Node& n, const std::map<ValueId, Val>& totals) {
    const auto guard = r_.from(n);
    for (const ValueId v : n.outputs) {
      Val whole;
      if (const auto total = totals.find(v); total != totals.end()) {
        whole = ops::cast(total->second, type(v).dtype);
      } else if (const auto parts = joined_.find(v); parts != joined_.end()) {
        const Val rows = r_.builder().call1("assemble", parts->second, {{"axis", std::int64_t{0}}});
        whole = ops::reshape(rows, type(v).shape);
      } else {
        continue;
      }
      if (program_.value(v).role != Role::kNone) {
        r_.builder().set_role(whole, program_.value(v).role);
      }
      r_.replace(v, whole);
    }
  }

  // True if something reads the value besides regions of the same feed-forward, which read chunks.
  bool is_read_whole(ValueId id, const Region& region) const {
    if (readers_.at_end[at(id)]) return true;
    return std::ranges::any_of(readers_.nodes[at(id)], [&](NodeId reader) {
      const Region* by = region_of_[at(reader)];
      return by == nullptr || !by->matches(region);
    });
  }

  const Program& program_;
  const std::int64_t chunks_;
  const bool adds_products_;
  const Readers readers_;
  Rewriter r_;
  std::vector<bool> varies_;
  std::deque<Region> regions_;
  std::vector<const Region*> region_of_;                // by node
  std::vector<bool> is_row_;                            // by value: results that exist in chunks
  std::vector<NodeId> waiting_;                         // nodes that read what is not emitted yet
  std::map<ValueId, std::vector<Val>> parts_, joined_;  // by chunk; as parts of an assembly
  std::map<ValueId, Val> matrices_, slices_;            // what a region reads, and of it a chunk
  bool is_cut_ = false;
};

}  // namespace

Program chunk_ffn(const Program& program, std::int64_t chunks,
                  const std::function<bool(const OpDef&)>& has_kernel) {
  if (chunks == 1) return program;
  return ChunkFfn(program, chunks, has_kernel(find_op(kProductAndSum))).run();
}

bool chunks_ffn(const PassOptions& o) {
  return o.run.ffn_chunks != 1;
}

Program chunk_ffn(const Program& p, const PassOptions& o) {
  return chunk_ffn(p, o.run.ffn_chunks, [&](const OpDef& op) { return o.has_kernel(op); });
}

}  // namespace tracestep
