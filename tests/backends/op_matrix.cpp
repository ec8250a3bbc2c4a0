#include "backends/op_matrix.h"

#include <set>

#include <fmt/format.h>

#include "ops/functions.h"
#include "ops/rules.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

Shape swapped(Shape shape, int a, int b) {
  std::swap(shape[a], shape[b]);
  return shape;
}

Val permuted(Val x, int a, int b) {
  Dims axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  return ops::permute(x, swapped(axes, a, b));
}

DType dtype_of(const Operand& operand, DType tested) {
  switch (operand.holds) {
    case Holds::kTested: return tested;
    case Holds::kWide: return rules::accumulation_dtype(tested);
    case Holds::kIndex: return DType::kI64;
    case Holds::kBool: return DType::kBool;
    case Holds::kBytes: return DType::kU8;
    case Holds::kCodes: return tested == DType::kF64 ? tested : DType::kF8E4M3;
    case Holds::kGradients: return tested == DType::kF64 ? tested : DType::kF8E5M2;
  }
  return tested;
}

// A leaf that holds the operand the way it is stored, and the operand as a view of it. What has
// too few dimensions to be stored that way is stored plainly.
Val add_operand(Builder& b, const std::string& name, const Operand& operand, DType dtype) {
  const Shape& shape = operand.shape;
  const int rank = shape.rank();
  Stored how = operand.stored;
  const int least_rank = how == Stored::kHeads ? 4 : how == Stored::kTransposed ? 2 : 1;
  if (rank < least_rank || shape.product() == 0) how = Stored::kPlain;
  switch (how) {
    case Stored::kPlain: return b.input(name, {dtype, shape});
    case Stored::kTransposed:
      return permuted(b.input(name, {dtype, swapped(shape, rank - 2, rank - 1)}), rank - 2,
                      rank - 1);
    case Stored::kHeads: return permuted(b.input(name, {dtype, swapped(shape, 1, 2)}), 1, 2);
    case Stored::kSliced: {
      Shape larger = shape;
      for (std::int64_t& d : larger) d += 3;
      Val x = b.input(name, {dtype, larger});
      for (int axis = 0; axis < rank; ++axis) x = ops::slice(x, axis, 2, 2 + shape[axis]);
      return x;
    }
    case Stored::kBroadcast: {
      Shape single = shape;
      single[0] = 1;
      return ops::broadcast_to(b.input(name, {dtype, single}), shape);
    }
    case Stored::kReshaped: {
      Shape with_one{1};
      for (const std::int64_t d : shape) with_one.push_back(d);
      return ops::reshape(b.input(name, {dtype, with_one}), shape);
    }
  }
  return {};
}

Attrs complete_attrs(const OpDef& op, const OpCase& c, DType dtype) {
  Attrs attrs = c.attrs;
  if (op.find_attr("dtype") != nullptr && attrs.find("dtype") == nullptr) attrs.set("dtype", dtype);
  return attrs;
}

std::vector<Val> add_op(Builder& b, const OpTest& test, const OpCase& c,
                        const BuildOptions& options) {
  const OpDef& op = find_op(test.op);
  std::vector<Val> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    operands.push_back(add_operand(b, fmt::format("x{}", i), c.operands[i],
                                   dtype_of(c.operands[i], options.dtype)));
  }
  const Attrs attrs = complete_attrs(op, c, options.dtype);
  if (options.donate) {
    // Copies of these alone: a library may choose by how the others lie.
    std::set<int> donors;
    for (const Donation& d :
         op.donates_in_groups ? op.donates_in_groups(attrs, operands.size()) : op.donates) {
      if (d.input < std::ssize(operands)) donors.insert(d.input);
    }
    for (const int i : donors) {
      Val& x = operands[static_cast<std::size_t>(i)];
      x = ops::copy(x);
    }
  }
  return b.call(op, operands, attrs);
}

Val total(Val x) {
  Dims all;
  for (int i = 0; i < x.shape().rank(); ++i) all.push_back(i);
  return ops::sum(x, all);
}

}  // namespace

Program build_program(const OpTest& test, const OpCase& c, const BuildOptions& options) {
  ops::register_all();
  Builder b(test.op);
  const std::vector<Val> results = add_op(b, test, c, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    bool wanted = options.results.empty();
    for (int r : options.results) wanted = wanted || r == static_cast<int>(i);
    if (wanted) b.output(fmt::format("y{}", i), results[i]);
  }
  return b.finish();
}

Program build_loss(const OpTest& test, const OpCase& c) {
  ops::register_all();
  Builder b(test.op);
  const std::vector<Val> results = add_op(b, test, c, {});
  Val loss;
  for (int i : test.gradient_outputs) {
    const Val y = results[static_cast<std::size_t>(i)];
    const Val part = total(ops::mul(y, b.input(fmt::format("w{}", i), y.type())));
    loss = loss ? ops::add(loss, part) : part;
  }
  b.output("loss", loss);
  return b.finish();
}

Tensors leaf_values(const Program& program, const OpCase& c) {
  Tensors out;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_operand = leaf.name.front() == 'x';
    const Operand any;
    const Operand& operand =
        is_operand ? c.operands[static_cast<std::size_t>(std::stoi(leaf.name.substr(1)))] : any;
    double low = operand.low, high = operand.high;
    // Whole numbers that all integer dtypes hold, also after a sum or a product of two.
    const bool counts = is_integer(leaf.type.dtype) && operand.holds == Holds::kTested;
    if (counts) low = 1, high = 11;
    out[leaf.name] = random_tensor(leaf.type, leaf.name, low, high);
  }
  if (c.settle) c.settle(out);
  return out;
}

std::vector<OpTest> records(bool (*wanted)(const OpTest&)) {
  ops::register_all();
  std::vector<OpTest> out;
  for (const OpTest& test : op_tests()) {
    if (wanted(test)) out.push_back(test);
  }
  return out;
}

std::string name_of_record(const ::testing::TestParamInfo<OpTest>& of) {
  return of.param.op;
}

std::string describe(const OpTest& test, std::size_t index, DType dtype) {
  constexpr std::string_view kHow[] = {"",        " transposed", " heads",
                                       " sliced", " broadcast",  " reshaped"};
  std::string text = fmt::format("{} case {} {}:", test.op, index, name_of(dtype));
  for (const Operand& o : test.cases[index].operands) {
    text += fmt::format(" {}{}", o.shape.str(), kHow[static_cast<int>(o.stored)]);
  }
  for (const auto& [name, value] : test.cases[index].attrs.entries()) text += " " + name;
  return text;
}

}  // namespace tracestep::testing
