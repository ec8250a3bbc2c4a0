// Each composite by itself, forward and backward: what it launches, moves and keeps in the forms
// that the runs ask for. Read from programs; nothing is run.
#include <algorithm>

#include "analysis/cost.h"
#include "analysis/saved.h"
#include "lab/compile/tables.h"
#include "lab/measure/run_columns.h"
#include "lab/report/fields.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

// A composite, and the shape of its first operand x, which is a parameter: gradients flow to it.
struct Composition {
  const char* name;
  Shape (*shape_of_x)(const RunSpec& run);
  Val (*build)(Builder& b, Val x);
};

// The shape [B,T,F] of the inside of a feed-forward block.
Shape inner(const RunSpec& run) {
  return {run.shape.batch, run.shape.context, run.model.d_ff};
}
// The shape [B,T,C] of the residual stream.
Shape residual(const RunSpec& run) {
  return {run.shape.batch, run.shape.context, run.model.d_model};
}
// The shape [B,H,T,D] of q, k and v by heads.
Shape heads(const RunSpec& run) {
  return {run.shape.batch, run.model.heads, run.shape.context, run.model.head_width()};
}
// The shape [B,H,T,T] of attention's scores.
Shape scores(const RunSpec& run) {
  return {run.shape.batch, run.model.heads, run.shape.context, run.shape.context};
}
// The shape [B·T,V] of the logits, a row for each token.
Shape logits(const RunSpec& run) {
  return {run.shape.batch * run.shape.context, run.model.vocab};
}

const Composition kCompositions[] = {
    {"silu", inner, [](Builder&, Val x) { return ops::silu(x); }},
    {"gelu", inner, [](Builder&, Val x) { return ops::unary("gelu", x); }},
    {"swiglu", inner,
     [](Builder& b, Val x) { return ops::swiglu(x, b.parameter("up", x.type())); }},
    {"rms_norm", residual,
     [](Builder& b, Val x) {
       return ops::rms_norm(x, b.parameter("weight", {x.dtype(), {x.dim(-1)}}));
     }},
    {"rope", heads,
     [](Builder& b, Val x) { return ops::rope(x, ops::rope_table(b, x.dim(-2), x.dim(-1), {})); }},
    {"softmax", scores, [](Builder&, Val x) { return ops::softmax(x, {.causal = true}); }},
    {"cross_entropy", logits,
     [](Builder& b, Val x) {
       return ops::cross_entropy(x, b.input("targets", {DType::kI64, {x.dim(0)}}));
     }},
};

constexpr const char* kScope = "composite";

// Returns the forward program of a composite, in a scope of its own. The loss is Σ y·upstream, so
// that the gradient of y is a tensor as in a model; cross-entropy is the loss itself.
Program forward_of(const Composition& composition, const RunSpec& run) {
  Builder b(composition.name);
  const Val x = b.parameter("x", {run.precision.parameters, composition.shape_of_x(run)});
  Val y;
  {
    const auto scope = b.scope(kScope);
    y = composition.build(b, x);
  }
  const auto scope = b.scope("loss");
  if (y.shape().rank() > 0) {
    Dims all;
    for (int axis = 0; axis < y.shape().rank(); ++axis) all.push_back(axis);
    y = ops::sum(ops::mul(y, b.input("upstream", y.type())), all);
  }
  b.output("loss", y);
  return b.finish();
}

struct PhaseWork {
  std::int64_t launches = 0, bytes = 0, flops = 0;
};

struct CompositeRow {
  const RunSpec& run;
  const char* name;
  std::int64_t elements = 0;  // of x
  PhaseWork forward = {}, backward = {};
  std::int64_t saved_bytes = 0;

  double per_element(std::int64_t total) const {
    return static_cast<double>(total) / static_cast<double>(elements);
  }
};

bool is_of_composite(const Node& node) {
  return std::ranges::any_of(node.origins, [](const Origin& o) { return o.path == kScope; });
}

CompositeRow row_of(const Composition& composition, const RunSpec& run, const Device& device) {
  const Program program = program_for(forward_of(composition, run), run, device);
  CompositeRow out{
      .run = run, .name = composition.name, .elements = composition.shape_of_x(run).product()};
  for (const Node& node : program.nodes) {
    if (!is_of_composite(node) || !launches(program, node)) continue;
    PhaseWork& work = node.origin().phase == Phase::kForward ? out.forward : out.backward;
    const Cost cost = cost_of(program, node);
    ++work.launches;
    work.bytes += cost.bytes_read + cost.bytes_written;
    work.flops += cost.flops;
  }
  for (const Saved& saved : saved_for_backward(program)) {
    if (is_of_composite(program.node(saved.producer))) out.saved_bytes += saved.bytes;
  }
  return out;
}

Fields<CompositeRow> composite_fields() {
  using R = const CompositeRow&;
  const auto per_element = [](const char* name, const char* title, const char* description) {
    return real_column(name, title, "B", 1, description);
  };
  Fields<CompositeRow> out{};
  out.add(program_columns(), [](R r) { return &r.run; });
  return out.add(
      {{text_column("composite"), &CompositeRow::name},
       {int_column("elements", "", "of its first operand"), &CompositeRow::elements},
       {int_column("forward_launches", "forward nodes",
                   "those that launch: each runs one kernel or more"),
        [](R r) { return r.forward.launches; }},
       {int_column("backward_launches", "backward nodes", "likewise"),
        [](R r) { return r.backward.launches; }},
       {per_element("forward_moved", "forward moves", "read and written, for an element"),
        [](R r) { return r.per_element(r.forward.bytes); }},
       {per_element("backward_moved", "backward moves", "likewise"),
        [](R r) { return r.per_element(r.backward.bytes); }},
       {per_element("saved", "keeps", "what forward made and backward reads, for an element"),
        [](R r) { return r.per_element(r.saved_bytes); }},
       {real_column("flops_per_element", "FLOPs", "", 1, "forward and backward, for an element"),
        [](R r) { return r.per_element(r.forward.flops + r.backward.flops); }}});
}

}  // namespace

Table composite_table(const DeviceFactory& make_device, std::span<const RunSpec> runs) {
  std::vector<CompositeRow> rows;
  for (const Composition& composition : kCompositions) {
    for (const RunSpec& run : runs) {
      if (run.model.captured != nullptr) continue;  // it has no sizes of theirs
      rows.push_back(row_of(composition, run, *make_device(run)));
    }
  }
  Table table = table_of("composites", "Composites by themselves, forward and backward",
                         composite_fields(), rows);
  table.notes = {
      "by the programs, without a run; every distinct element is read once and written once; what "
      "the caller keeps alive anyway, as the operands, is not counted as kept"};
  return table;
}

}  // namespace tracestep
