// Gathers by index and their transposes. Sums into a row are added in the order of the indices.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

OpDef gather_op(std::string name, std::string doc, std::vector<std::string> inputs) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .inputs = std::move(inputs),
          .outputs = {"y"},
          .kernel_class = KernelClass::kGather,
          .precision_class = PrecisionClass::kKeep,
          .accepts = rules::contiguous};
}

Shape without_last(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 1)));
}

void register_rows() {
  OpDef gather =
      gather_op("gather", "Rows of a table by index (embedding look-up).", {"table", "indices"});
  gather.attrs = {{"padding", AttrKind::kInt, AttrValue(std::int64_t{-1}),
                   "a row that gets no gradient; -1: none"}};
  gather.infer = [](const OpCall& c) {
    rules::require_integer(c, 1);
    if (c.inputs[0].shape.rank() != 2) rules::require_shape(c, 0, {0, 0});
    Shape out = c.inputs[1].shape;
    out.push_back(c.inputs[0].shape[1]);
    return std::vector{Type{c.inputs[0].dtype, out}};
  };
  gather.bytes_read = [](const OpCall& c) { return c.outputs[0].bytes() + c.inputs[1].bytes(); };
  gather.gradient = [](Expansion e) {
    Val g = e.output_grads[0];
    if (const std::int64_t padding = e.attrs.integer("padding"); padding >= 0) {
      const Val row = fill(e.builder, static_cast<double>(padding), {e.inputs[1].dtype(), {}});
      Shape column = e.inputs[1].shape();
      column.push_back(1);
      const Val is_padding =
          broadcast_to(reshape(binary("eq", e.inputs[1], row), column), g.shape());
      const Val zero = broadcast_to(fill(e.builder, 0.0, {g.dtype(), {}}), g.shape());
      g = select(is_padding, zero, g);
    }
    return std::vector{
        e.builder.call1("scatter_add", {g, e.inputs[1]}, {{"rows", e.inputs[0].shape()[0]}}),
        Val{}};
  };
  register_op(std::move(gather));

  OpDef scatter =
      gather_op("scatter_add", "Zeros, with rows of x added at their indices.", {"x", "indices"});
  scatter.attrs = {{"rows", AttrKind::kInt, std::nullopt, "rows of the result"}};
  scatter.infer = [](const OpCall& c) {
    rules::require_integer(c, 1);
    rules::require_min_rank(c, 0, 1);
    rules::require_shape(c, 1, without_last(c.inputs[0].shape));
    return std::vector{
        Type{c.inputs[0].dtype, {c.attrs.integer("rows"), c.inputs[0].shape.back()}}};
  };
  scatter.flops = rules::per_operand(0, 1);
  scatter.gradient = [](Expansion e) {
    return std::vector{ops::gather(e.output_grads[0], e.inputs[1]), Val{}};
  };
  register_op(std::move(scatter));

  OpDef onto = gather_op("scatter_add_to",
                         "base, with rows of x added at their indices, rounded once; written over "
                         "base where that dies.",
                         {"x", "indices", "base"});
  onto.infer = [](const OpCall& c) {
    rules::require_integer(c, 1);
    rules::require_min_rank(c, 0, 1);
    rules::require_floating(c, 0);
    rules::require_floating(c, 2);
    rules::require_shape(c, 1, without_last(c.inputs[0].shape));
    const DType from = c.inputs[2].dtype, to = c.inputs[0].dtype;
    if (from != to && !(to == DType::kF32 && is_low_precision(from))) {
      fail_usage(c.op.name, "{} is {}; {} or, if that is f32, a type of 16 bits is expected",
                 c.op.inputs[2], c.inputs[2].str(), name_of(to));
    }
    Shape shape = c.inputs[2].shape;
    if (shape.rank() != 2) rules::require_shape(c, 2, {0, 0});
    rules::require_shape(c, 2, {shape[0], c.inputs[0].shape.back()});
    return std::vector{Type{to, shape}};
  };
  onto.decompose = [](Expansion e) {
    const Val rows = e.builder.call1("scatter_add", {e.inputs[0], e.inputs[1]},
                                     {{"rows", e.inputs[2].shape()[0]}});
    return std::vector{add(rows, cast(e.inputs[2], rows.dtype()))};
  };
  onto.flops = [](const OpCall& c) { return c.inputs[0].count() + c.outputs[0].count(); };
  onto.donates = {{0, 2}};
  register_op(std::move(onto));
}

void register_elements() {
  OpDef take = gather_op("take_along", "One element of each row of x: y[i] = x[i, indices[i]].",
                         {"x", "indices"});
  take.infer = [](const OpCall& c) {
    rules::require_integer(c, 1);
    rules::require_min_rank(c, 0, 1);
    rules::require_shape(c, 1, without_last(c.inputs[0].shape));
    return std::vector{Type{c.inputs[0].dtype, c.inputs[1].shape}};
  };
  take.bytes_read = [](const OpCall& c) { return c.outputs[0].bytes() + c.inputs[1].bytes(); };
  take.gradient = [](Expansion e) {
    return std::vector{e.builder.call1("put_along", {e.output_grads[0], e.inputs[1]},
                                       {{"size", e.inputs[0].shape().back()}}),
                       Val{}};
  };
  register_op(std::move(take));

  OpDef put = gather_op("put_along", "Zeros, with y[i, indices[i]] = x[i].", {"x", "indices"});
  put.attrs = {{"size", AttrKind::kInt, std::nullopt, "length of the new last axis"}};
  put.infer = [](const OpCall& c) {
    rules::require_integer(c, 1);
    rules::require_shape(c, 1, c.inputs[0].shape);
    Shape out = c.inputs[0].shape;
    out.push_back(c.attrs.integer("size"));
    return std::vector{Type{c.inputs[0].dtype, out}};
  };
  put.gradient = [](Expansion e) {
    return std::vector{take_along(e.output_grads[0], e.inputs[1]), Val{}};
  };
  register_op(std::move(put));
}

}  // namespace

void register_gathers() {
  register_rows();
  register_elements();
}

}  // namespace tracestep::ops
