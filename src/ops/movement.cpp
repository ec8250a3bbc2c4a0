// Movement: views, which own no bytes, and the few ops that copy.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// Returns the strides that make `from` (shape, strides) a view of shape `to`; nullopt: it needs a
// copy. Dimensions match in groups of equal product, each walkable with one stride.
std::optional<Strides> reshaped_strides(const Shape& from, const Strides& strides,
                                        const Shape& to) {
  if (from.product() == 0) return contiguous_strides(to);
  Strides out = Dims::filled(to.rank(), 0);
  int i = from.rank() - 1, j = to.rank() - 1;
  while (i >= 0 || j >= 0) {
    // Gather one group from the back on either side.
    const int group_end = i, out_end = j;
    std::int64_t left = 1, right = 1;
    if (i >= 0) left = from[i--];
    if (j >= 0) right = to[j--];
    while (left != right) {
      if (left < right) {
        left *= from[i--];
      } else {
        right *= to[j--];
      }
    }
    // The group must be contiguous within itself.
    std::int64_t step = 0, expected = 0;
    bool first = true;
    for (int k = group_end; k > i; --k) {
      if (from[k] == 1) continue;
      if (first) {
        step = strides[k];
      } else if (strides[k] != expected) {
        return std::nullopt;
      }
      expected = strides[k] * from[k];
      first = false;
    }
    for (int k = out_end; k > j; --k) {
      out[k] = step;
      step *= to[k];
    }
  }
  return out;
}

// Returns the operand if it has the shape that the call asks for, so that it changes nothing.
Val same_shape(Expansion e) {
  return e.attrs.ints("shape") == e.inputs[0].shape() ? e.inputs[0] : Val{};
}

// Returns the operand of the permutation before this one if this one undoes it, else "no value".
Val undone(Expansion e) {
  const Program& program = e.builder.program();
  const NodeId before = program.value(e.inputs[0].id).producer;
  if (before == kNoNode || program.node(before).op->name != "permute") return {};
  const Dims& first = program.node(before).attrs.ints("axes");
  const Dims& second = e.attrs.ints("axes");
  for (int i = 0; i < second.rank(); ++i) {
    if (first[static_cast<int>(second[i])] != i) return {};
  }
  return e.builder.at(program.node(before).inputs[0]);
}

void view_op(OpDef op) {
  op.inputs = {"x"};
  op.outputs = {"y"};
  op.kernel_class = KernelClass::kView;
  op.precision_class = PrecisionClass::kKeep;
  op.cheap_to_recompute = true;
  register_op(std::move(op));
}

void register_reshape() {
  view_op(
      {.name = "reshape",
       .doc = "The same elements in row-major order under another shape.",
       .attrs = {{"shape", AttrKind::kInts, std::nullopt, "new shape"}},
       .infer =
           [](const OpCall& c) {
             const Shape& shape = c.attrs.ints("shape");
             if (shape.product() != c.inputs[0].count()) {
               fail_usage(c.op, "{} has {} elements, {} would have {}", c.inputs[0].shape.str(),
                          c.inputs[0].count(), shape.str(), shape.product());
             }
             return std::vector{Type{c.inputs[0].dtype, shape}};
           },
       .view = [](const OpCall& c, const Layout& from) -> std::optional<Layout> {
         const auto strides =
             reshaped_strides(c.inputs[0].shape, from.strides, c.attrs.ints("shape"));
         if (!strides) return std::nullopt;
         return Layout{kNoValue, from.offset, *strides};
       },
       .gradient =
           [](Expansion e) { return std::vector{reshape(e.output_grads[0], e.inputs[0].shape())}; },
       .identity = same_shape});
}

void register_permute() {
  view_op({.name = "permute",
           .doc = "Dimension i of the result is dimension axes[i] of x.",
           .attrs = {{"axes", AttrKind::kInts, std::nullopt, "a permutation"}},
           .infer =
               [](const OpCall& c) {
                 const Dims& axes = c.attrs.ints("axes");
                 const Shape& shape = c.inputs[0].shape;
                 Dims sorted = axes;
                 std::sort(sorted.begin(), sorted.end());
                 for (int i = 0; i < sorted.rank(); ++i) {
                   if (sorted.rank() != shape.rank() || sorted[i] != i) {
                     fail_usage(c.op, "axes {} do not permute the {} dimensions of x", axes.str(),
                                shape.rank());
                   }
                 }
                 Shape out;
                 for (std::int64_t a : axes) out.push_back(shape[static_cast<int>(a)]);
                 return std::vector{Type{c.inputs[0].dtype, out}};
               },
           .view = [](const OpCall& c, const Layout& from) -> std::optional<Layout> {
             Strides out;
             for (std::int64_t a : c.attrs.ints("axes")) {
               out.push_back(from.strides[static_cast<int>(a)]);
             }
             return Layout{kNoValue, from.offset, out};
           },
           .gradient =
               [](Expansion e) {
                 const Dims& axes = e.attrs.ints("axes");
                 Dims inverse = axes;
                 for (int i = 0; i < axes.rank(); ++i) inverse[static_cast<int>(axes[i])] = i;
                 return std::vector{permute(e.output_grads[0], inverse)};
               },
           .identity = undone});
}

void register_slice() {
  view_op({.name = "slice",
           .doc = "Elements start ≤ i < stop of one axis.",
           .attrs = {{"axis", AttrKind::kInt, std::nullopt, "sliced axis"},
                     {"start", AttrKind::kInt, std::nullopt, "first element"},
                     {"stop", AttrKind::kInt, std::nullopt, "one past the last"}},
           .infer =
               [](const OpCall& c) {
                 Type out = c.inputs[0];
                 const int axis =
                     rules::normalized_axis(c, c.attrs.integer("axis"), out.shape.rank());
                 const std::int64_t start = c.attrs.integer("start");
                 const std::int64_t stop = c.attrs.integer("stop");
                 if (start < 0 || start > stop || stop > out.shape[axis]) {
                   fail_usage(c.op, "[{}, {}) is not inside axis {} of {}", start, stop, axis,
                              out.shape.str());
                 }
                 out.shape[axis] = stop - start;
                 return std::vector{out};
               },
           .view = [](const OpCall& c, const Layout& from) -> std::optional<Layout> {
             const int axis =
                 rules::normalized_axis(c, c.attrs.integer("axis"), c.inputs[0].shape.rank());
             const std::int64_t start = c.outputs[0].count() == 0 ? 0 : c.attrs.integer("start");
             return Layout{kNoValue, from.offset + start * from.strides[axis], from.strides};
           },
           .gradient =
               [](Expansion e) {
                 return std::vector{e.builder.call1(
                     "pad_slice", {e.output_grads[0]},
                     {{"axis", e.attrs.integer("axis")},
                      {"start", e.attrs.integer("start")},
                      {"size", e.inputs[0].shape()[static_cast<int>(
                                   (e.attrs.integer("axis") + e.inputs[0].shape().rank()) %
                                   e.inputs[0].shape().rank())]}})};
               }});
}

void register_broadcast() {
  view_op(
      {.name = "broadcast",
       .doc = "Repeats dimensions of size 1 (and missing leading ones) without copying.",
       .attrs = {{"shape", AttrKind::kInts, std::nullopt, "result shape"}},
       .infer =
           [](const OpCall& c) {
             const Shape& from = c.inputs[0].shape;
             const Shape& to = c.attrs.ints("shape");
             bool fits = from.rank() <= to.rank();
             for (int i = 0; fits && i < from.rank(); ++i) {
               fits = from.back(i) == 1 || from.back(i) == to.back(i);
             }
             if (!fits) {
               fail_usage(c.op, "{} does not broadcast to {}", from.str(), to.str());
             }
             return std::vector{Type{c.inputs[0].dtype, to}};
           },
       .view = [](const OpCall& c, const Layout& from) -> std::optional<Layout> {
         const Shape& shape = c.inputs[0].shape;
         const Shape& to = c.attrs.ints("shape");
         Strides out = Dims::filled(to.rank(), 0);
         for (int i = 0; i < shape.rank(); ++i) {
           const int at = to.rank() - 1 - i;
           if (shape.back(i) == to[at]) out[at] = from.strides.back(i);
         }
         return Layout{kNoValue, from.offset, out};
       },
       .gradient =
           [](Expansion e) { return std::vector{sum_to(e.output_grads[0], e.inputs[0].shape())}; },
       .identity = same_shape});

  view_op({.name = "stop_gradient",
           .doc = "The identity; gradients do not flow back through it.",
           .infer = rules::same_type,
           .view = [](const OpCall&, const Layout& from) { return std::optional<Layout>(from); },
           .gradient = [](Expansion) { return std::vector<Val>(1); }});
}

void register_copies() {
  register_op({.name = "copy",
               .doc = "The same elements, laid out in row-major order.",
               .inputs = {"x"},
               .outputs = {"y"},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .fusion = Fusion::kElementwise,
               .infer = rules::same_type,
               .accepts = rules::any_strides,
               .writes = rules::any_strides,
               .gradient = [](Expansion e) { return std::vector{e.output_grads[0]}; },
               .cheap_to_recompute = true});

  register_op({.name = "assign",
               .doc = "`value` in the storage of `target`: an update that could not be in place.",
               .inputs = {"target", "value"},
               .outputs = {"y"},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     rules::require_same_dtype(c, 0, 1);
                     rules::require_shape(c, 1, c.inputs[0].shape);
                     return std::vector{c.inputs[0]};
                   },
               .accepts = rules::any_strides,
               .bytes_read = [](const OpCall& c) { return c.inputs[1].bytes(); },
               .donates = {{0, 0}}});

  register_op({.name = "pad_slice",
               .doc = "Zeros, with x at [start, start + extent) of one axis: gradient of slice.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {{"axis", AttrKind::kInt, std::nullopt, "padded axis"},
                         {"start", AttrKind::kInt, std::nullopt, "where x begins"},
                         {"size", AttrKind::kInt, std::nullopt, "extent of the result"}},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     Type out = c.inputs[0];
                     const int axis =
                         rules::normalized_axis(c, c.attrs.integer("axis"), out.shape.rank());
                     const std::int64_t start = c.attrs.integer("start");
                     if (start < 0 || start + out.shape[axis] > c.attrs.integer("size")) {
                       fail_usage(c.op, "{} at {} does not fit into {}", out.shape.str(), start,
                                  c.attrs.integer("size"));
                     }
                     out.shape[axis] = c.attrs.integer("size");
                     return std::vector{out};
                   },
               .accepts = rules::any_strides,
               .gradient =
                   [](Expansion e) {
                     const int axis = static_cast<int>(e.attrs.integer("axis"));
                     const std::int64_t start = e.attrs.integer("start");
                     const Val x = e.inputs[0];
                     return std::vector{
                         slice(e.output_grads[0], axis, start,
                               start + x.shape()[axis < 0 ? axis + x.shape().rank() : axis])};
                   }});
}

std::vector<Type> moved_type(const OpCall& c) {
  require_lane(c);
  if (c.inputs.front() != c.inputs.back()) {
    fail_usage(c.op, "{} does not fit into {}", c.inputs.back().str(), c.inputs.front().str());
  }
  return {c.inputs.back()};
}

// Registers ops that copy between device and host memory; the attribute `lane` lets them run at the
// same time as other nodes.
void register_moves() {
  register_op({.name = "offload",
               .doc = "x in the storage of `place`, in the host's memory.",
               .inputs = {"place", "x"},
               .outputs = {"y"},
               .attrs = {lane_attr(), batch_attr()},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer = moved_type,
               .accepts = rules::contiguous,
               .bytes_read = [](const OpCall& c) { return c.inputs[1].bytes(); },
               .donates = {{0, 0}}});
  register_op({.name = "reload",
               .doc = "A copy of x, from the host's memory.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {lane_attr(), batch_attr()},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer = moved_type,
               .accepts = rules::contiguous});
}

void register_concat() {
  register_op({.name = "concat",
               .doc = "Operands one after another along `axis`.",
               .inputs = {"xs..."},
               .outputs = {"y"},
               .attrs = {{"axis", AttrKind::kInt, std::nullopt, "joined axis"}},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer = rules::concatenated_along_axis,
               .accepts = rules::any_strides,
               .gradient = [](Expansion e) {
                 const int rank = e.inputs[0].shape().rank();
                 const auto axis = static_cast<int>((e.attrs.integer("axis") + rank) % rank);
                 std::vector<Val> out;
                 std::int64_t at = 0;
                 for (const Val& x : e.inputs) {
                   out.push_back(slice(e.output_grads[0], axis, at, at + x.shape()[axis]));
                   at += x.shape()[axis];
                 }
                 return out;
               }});

  register_op({.name = "write_slice",
               .doc = "`base` with `piece` written from `position` on along `axis` (KV cache).",
               .inputs = {"base", "piece", "position"},
               .outputs = {"y"},
               .attrs = {{"axis", AttrKind::kInt, std::nullopt, "written axis"}},
               .kernel_class = KernelClass::kCopy,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     const Type& base = c.inputs[0];
                     const int axis =
                         rules::normalized_axis(c, c.attrs.integer("axis"), base.shape.rank());
                     rules::require_same_dtype(c, 0, 1);
                     Shape piece = base.shape;
                     if (c.inputs[1].shape.rank() == piece.rank()) {
                       piece[axis] = std::min(c.inputs[1].shape[axis], piece[axis]);
                     }
                     rules::require_shape(c, 1, piece);
                     rules::require_integer(c, 2);
                     rules::require_shape(c, 2, {});
                     return std::vector{base};
                   },
               .accepts = [](int i, const Type& t,
                             const Strides& s) { return i == 1 || rules::contiguous(i, t, s); },
               .donates = {{0, 0}}});
}

}  // namespace

void register_movement() {
  register_reshape();
  register_permute();
  register_slice();
  register_broadcast();
  register_copies();
  register_moves();
  register_concat();
}

}  // namespace tracestep::ops
