#include "passes/memory_passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "ops/rules.h"
#include "passes/loss_pairs.h"
#include "passes/pass_rules.h"
#include "passes/row_chunks.h"

namespace tracestep {
namespace {

constexpr std::int64_t kLeastRows = 1024;

// True for a matrix product of two operands, without a bias.
bool is_product(const Node& node) {
  return node.op->product && node.inputs.size() == 2;
}

// A product that reads the gradient of the logits as its operand `side`.
struct GradientProduct {
  NodeId node = kNoNode;
  int side = 0;
  bool sums_rows = false;  // over the rows of the logits; else they are the rows of its result too
  NodeId end = kNoNode;    // the product, or what its result goes into: a cast, a sum with `start`
  ValueId start = kNoValue;
};

struct Cut {
  LossPair pair;              // without a gradient: the loss alone
  NodeId widening = kNoNode;  // of the logits, for the loss; kNoNode: none
  NodeId product = kNoNode;   // makes the logits
  std::vector<GradientProduct> products = {};
  std::vector<NodeId> nodes = {};  // all that the chunks replace

  // The node in whose place the chunks are computed.
  NodeId where() const { return pair.gradient == kNoNode ? pair.loss : pair.gradient; }
};

// Finds the losses that can be cut, and the products that make their logits or read the gradient.
class Finder {
 public:
  explicit Finder(const Program& program) : program_(program), readers_(program) {}

  std::vector<Cut> find() const {
    std::vector<LossPair> pairs = find_loss_pairs(program_, readers_);
    const OpDef* loss = loss_ops().front();
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      const bool is_alone = node(id).op == loss && !is_read(node(id).outputs[1]);
      if (is_alone) pairs.push_back({.loss = id, .logits = node(id).inputs[0]});
    }
    std::vector<Cut> out;
    for (const LossPair& pair : pairs) {
      if (auto cut = cut_of(pair)) out.push_back(std::move(*cut));
    }
    return out;
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  bool is_read(ValueId id) const {
    return !readers_.nodes[at(id)].empty() || readers_.at_end[at(id)];
  }

  std::optional<Cut> cut_of(const LossPair& pair) const {
    Cut out{.pair = pair, .nodes = {pair.loss}};
    const bool has_gradient = pair.gradient != kNoNode;
    const ValueId wide = node(pair.loss).inputs[0];
    const std::size_t readers = has_gradient ? 2 : 1;
    if (readers_.nodes[at(wide)].size() != readers || readers_.at_end[at(wide)])
      return std::nullopt;
    if (!find_product(wide, out)) return std::nullopt;
    if (!has_gradient) return out;
    out.nodes.push_back(pair.gradient);
    NodeId end = pair.gradient;
    if (pair.narrowing != kNoNode) out.nodes.push_back(end = pair.narrowing);
    if (!find_gradient_products(node(end).outputs[0], out) || out.products.empty()) {
      return std::nullopt;
    }
    return out;
  }

  // Finds the product that makes the logits, through a cast and views that have a single reader.
  bool find_product(ValueId id, Cut& out) const {
    const Type type{program_.type(id)};
    while (true) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode) return false;
      const Node& n = node(maker);
      out.nodes.push_back(maker);
      if (is_product(n)) {
        out.product = maker;
        return type.shape == program_.type(n.outputs[0]).shape;
      }
      const bool widens = n.op->only_converts && out.widening == kNoNode;
      if (widens) out.widening = maker;
      if (!widens && !(n.op->is_view() && keeps_order(program_, n))) return false;
      id = n.inputs[0];
      if (readers_.only(id) != maker) return false;
    }
  }

  // Finds products that read the gradient of the logits, also by views; false: one cannot be cut.
  bool find_gradient_products(ValueId gradient, Cut& out) const {
    if (readers_.at_end[at(gradient)]) return false;
    return std::ranges::all_of(readers_.nodes[at(gradient)], [&](NodeId reader) {
      const Node& n = node(reader);
      out.nodes.push_back(reader);
      if (n.op->is_view()) {
        return keeps_order(program_, n) && find_gradient_products(n.outputs[0], out);
      }
      return add_gradient_product(reader, gradient, out);
    });
  }

  bool add_gradient_product(NodeId reader, ValueId gradient, Cut& out) const {
    const Node& n = node(reader);
    const bool is_cut = is_product(n) && std::ranges::count(n.inputs, gradient) == 1 &&
                        program_.type(gradient).shape.rank() == 2;
    if (!is_cut) return false;
    GradientProduct product{.node = reader, .side = n.inputs[0] == gradient ? 0 : 1, .end = reader};
    const ProductAxes axes = axes_of(program_, n);
    product.sums_rows = axes.summed[product.side] == 0;
    const bool keeps_rows = product.side == 0 && axes.rows == 0;
    const ValueId other = n.inputs[at(1 - product.side)];
    if (!product.sums_rows && !keeps_rows) return false;
    if (program_.value(other).producer > out.pair.gradient) return false;
    if (product.sums_rows) find_end(product, out);
    out.products.push_back(product);
    return true;
  }

  // Adds to `product` the cast to the dtype of sums, and the sum with a leaf, that follow it.
  void find_end(GradientProduct& product, Cut& out) const {
    const DType wide =
        rules::accumulation_dtype(program_.type(node(product.node).outputs[0]).dtype);
    NodeId reader = readers_.only(node(product.end).outputs[0]);
    const auto gives_wide = [&] {
      return reader != kNoNode && program_.type(node(reader).outputs[0]).dtype == wide;
    };
    if (gives_wide() && node(reader).op->only_converts) {
      out.nodes.push_back(product.end = reader);
      reader = readers_.only(node(reader).outputs[0]);
    }
    if (!gives_wide() || !node(reader).op->is_sum || node(reader).inputs.size() != 2) return;
    const Node& sum = node(reader);
    const ValueId start = sum.inputs[sum.inputs[0] == node(product.end).outputs[0] ? 1 : 0];
    if (program_.value(start).leaf == LeafKind::kNone || readers_.only(start) != reader) return;
    out.nodes.push_back(product.end = reader);
    product.start = start;
  }

  const Program& program_;
  const Readers readers_;
};

// Writes the program, with chunks in place of the nodes that Finder found.
class ChunkLoss {
 public:
  ChunkLoss(const Program& program, std::int64_t chunks, bool adds_products)
      : program_(program),
        chunks_(chunks),
        adds_products_(adds_products),
        r_(program, "chunk_loss"),
        replaced_(program.nodes.size(), false) {
    for (Cut& cut : Finder(program).find()) {
      if (rows_of(cut) < 2 || chunks_of(cut) < 2) continue;
      for (NodeId id : cut.nodes) replaced_[at(id)] = true;
      cuts_.emplace(cut.where(), std::move(cut));
    }
  }

  Program run() {
    if (cuts_.empty()) return program_;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) emit(static_cast<NodeId>(i));
    TRACESTEP_CHECK(waiting_.empty(), "chunk_loss: {} nodes wait for a loss", waiting_.size());
    return remove_dead_nodes(r_.finish());
  }

 private:
  // The results of one Cut, over those of its chunks that have been emitted so far.
  struct Sums {
    std::map<std::int64_t, Val> losses;   // by the rows of a chunk: the sum of their means
    std::map<std::int64_t, Val> seeds;    // likewise: what the gradient starts from
    std::vector<std::vector<Val>> parts;  // by product: results by rows
    std::vector<Val> totals;              // by product: sums over rows
  };

  const Node& node(NodeId id) const { return program_.node(id); }
  const Shape& logits_of(const Cut& cut) const {
    return program_.type(node(cut.product).outputs[0]).shape;
  }
  std::int64_t rows_of(const Cut& cut) const { return logits_of(cut)[0]; }
  std::int64_t chunks_of(const Cut& cut) const {
    const std::int64_t rows = rows_of(cut), vocab = logits_of(cut)[1];
    if (chunks_ > 0) return std::min(chunks_, rows);
    const std::int64_t width = program_.type(node(cut.product).inputs[0]).count() / rows;
    return default_loss_chunks(rows, width, vocab);
  }

  // Emits the node, or all chunks of a Cut in its place; nodes that read the loss wait for these.
  void emit(NodeId id) {
    if (const auto found = cuts_.find(id); found != cuts_.end()) {
      emit_cut(found->second);
      for (NodeId waiting : std::exchange(waiting_, {})) emit(waiting);
    } else if (!replaced_[at(id)]) {
      const bool is_ready =
          std::ranges::all_of(node(id).inputs, [&](ValueId v) { return r_.has(v); });
      if (!is_ready) return waiting_.push_back(id);
      r_.copy(node(id));
    }
  }

  void emit_cut(const Cut& cut) {
    Sums sums;
    sums.parts.resize(cut.products.size());
    for (const GradientProduct& p : cut.products) {
      sums.totals.push_back(p.start == kNoValue ? Val{} : r_.map(p.start));
    }
    const std::int64_t rows = rows_of(cut), chunks = chunks_of(cut);
    for (std::int64_t i = 0; i < chunks; ++i) {
      epoch_ = static_cast<int>(i + 1);
      emit_chunk(cut, chunk_start(i, chunks, rows), chunk_start(i + 1, chunks, rows), sums);
    }
    replace_loss(cut, sums);
    for (std::size_t i = 0; i < cut.products.size(); ++i) {
      replace_product(cut.products[i], sums.parts[i], sums.totals[i]);
    }
  }

  Builder::Guard forward(const Node& like) {
    auto guard = r_.from(like);
    r_.builder().set_epoch(epoch_);
    return guard;
  }

  void emit_chunk(const Cut& cut, std::int64_t start, std::int64_t stop, Sums& sums) {
    const Val logits = logits_of_chunk(cut, start, stop);
    const Node& loss = node(cut.pair.loss);
    std::vector<Val> operands{logits}, results;
    {
      const auto guard = forward(loss);
      operands.push_back(ops::slice(r_.map(loss.inputs[1]), 0, start, stop));
      if (has_count(cut)) operands.push_back(r_.map(loss.inputs[2]));
      results = r_.builder().call(*loss.op, operands, loss.attrs);
      Val& total = sums.losses[stop - start];
      total = total ? ops::add(total, results[0]) : results[0];
    }
    if (cut.pair.gradient == kNoNode) return;
    const Val gradient = gradient_of_chunk(cut, operands, results[1], sums);
    for (std::size_t i = 0; i < cut.products.size(); ++i) {
      const GradientProduct& p = cut.products[i];
      if (p.sums_rows) {
        sum_rows(p, gradient, start, stop, sums.totals[i]);
      } else {
        const auto guard = r_.from(node(p.node));
        sums.parts[i].push_back(product(p, {gradient, r_.map(node(p.node).inputs[1])}));
      }
    }
  }

  Val logits_of_chunk(const Cut& cut, std::int64_t start, std::int64_t stop) {
    const Node& n = node(cut.product);
    Val out;
    {
      const auto guard = forward(n);
      const Val rows = ops::slice(r_.map(n.inputs[0]), axes_of(program_, n).rows, start, stop);
      out = r_.builder().call(*n.op, {rows, r_.map(n.inputs[1])}, n.attrs).front();
    }
    if (cut.widening == kNoNode) return out;
    const Node& widening = node(cut.widening);
    const auto guard = forward(widening);
    return r_.builder().call(*widening.op, {out}, widening.attrs).front();
  }

  // Returns the gradient of a chunk's logits, before widening. `operands`: those of its loss.
  Val gradient_of_chunk(const Cut& cut, const std::vector<Val>& operands, Val row_sums,
                        Sums& sums) {
    const Node& n = node(cut.pair.gradient);
    Val out;
    {
      const auto guard = r_.from(n);
      const std::int64_t rows = operands[1].dim(0);
      Val& seed = sums.seeds[rows];
      if (!seed) seed = share_of(cut, r_.map(n.inputs[0]), rows);
      std::vector<Val> of_gradient{seed, operands[0], operands[1], row_sums};
      if (has_count(cut)) of_gradient.push_back(operands[2]);
      out = r_.builder().call(*n.op, of_gradient, n.attrs).front();
    }
    if (cut.pair.narrowing == kNoNode) return out;
    const Node& narrowing = node(cut.pair.narrowing);
    const auto guard = r_.from(narrowing);
    return r_.builder().call(*narrowing.op, {out}, narrowing.attrs).front();
  }

  // True if the loss divides by a number that it reads: the losses of chunks are then added.
  bool has_count(const Cut& cut) const { return node(cut.pair.loss).inputs.size() > 2; }

  // Returns `x`, a mean or its gradient, times the chunk's share of rows; `x` if has_count().
  Val share_of(const Cut& cut, Val x, std::int64_t rows) const {
    if (has_count(cut)) return x;
    return ops::affine(x, static_cast<double>(rows) / static_cast<double>(rows_of(cut)));
  }

  Val product(const GradientProduct& p, const std::vector<Val>& operands) {
    return r_.builder().call(*node(p.node).op, operands, node(p.node).attrs).front();
  }

  // Adds the product of the chunk's rows to `total`.
  void sum_rows(const GradientProduct& p, Val gradient, std::int64_t start, std::int64_t stop,
                Val& total) {
    const Node& n = node(p.node);
    const auto guard = r_.from(n);
    const int other = 1 - p.side;
    std::vector<Val> operands(2, gradient);
    operands[at(other)] =
        ops::slice(r_.map(n.inputs[at(other)]), axes_of(program_, n).summed[other], start, stop);
    total = add_product(r_.builder(), n, std::move(operands), total, adds_products_);
  }

  void replace_loss(const Cut& cut, const Sums& sums) {
    const Node& loss = node(cut.pair.loss);
    const auto guard = forward(loss);
    Val total;
    for (const auto& [rows, sum] : sums.losses) {
      const Val part = share_of(cut, sum, rows);
      total = total ? ops::add(total, part) : part;
    }
    r_.replace(loss.outputs[0], total);
  }

  void replace_product(const GradientProduct& p, const std::vector<Val>& parts, Val total) {
    const Node& end = node(p.end);
    const auto guard = r_.from(end);
    const ValueId replaced = end.outputs[0];
    r_.replace(replaced, p.sums_rows
                             ? ops::cast(total, program_.type(replaced).dtype)
                             : r_.builder().call1("assemble", parts, {{"axis", std::int64_t{0}}}));
  }

  const Program& program_;
  const std::int64_t chunks_;
  const bool adds_products_;
  Rewriter r_;
  std::vector<bool> replaced_;   // by node
  std::map<NodeId, Cut> cuts_;   // by the node in whose place the chunks are computed
  std::vector<NodeId> waiting_;  // nodes that read a loss that is not emitted yet
  int epoch_ = 0;                // of the forward nodes of the chunk
};

}  // namespace

std::int64_t default_loss_chunks(std::int64_t rows, std::int64_t width, std::int64_t vocab) {
  return std::max<std::int64_t>(1, std::min(rows / kLeastRows, vocab / width));
}

Program chunk_loss(const Program& program, std::int64_t chunks,
                   const std::function<bool(const OpDef&)>& has_kernel) {
  if (chunks == 1) return program;
  return ChunkLoss(program, chunks, has_kernel(find_op(kProductAndSum))).run();
}

bool chunks_loss(const PassOptions& o) {
  return o.run.loss_chunks != 1;
}

Program chunk_loss(const Program& p, const PassOptions& o) {
  Program out = chunk_loss(p, o.run.loss_chunks, [&](const OpDef& op) { return o.has_kernel(op); });
  if (o.context.note && out == p)
    o.context.note("cut nothing: one chunk is enough, or the loss is not an op of its own");
  return out;
}

}  // namespace tracestep
