// A record per op: the operands it is tried with. Forward on every back end and dtype, gradient,
// decomposition, donation and support tests are all made from these.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "ir/program.h"
#include "support/run_program.h"

namespace tracestep::testing {

// How an operand lies in memory. What the op's record does not accept is copied first.
enum class Stored {
  kPlain,
  kTransposed,  // the last two axes swapped
  kHeads,       // axes 1 and 2 swapped, as attention reads [B,T,H,D]
  kSliced,      // a part of a larger tensor
  kBroadcast,   // the first axis repeats one entry
  kReshaped,    // dense, but axes of size 1 have a stride of 0, as reshape leaves them
};

enum class Holds {
  kTested,  // the dtype under test
  kWide,    // the dtype statistics are kept in (f32; f64 in float64 programs)
  kIndex,   // i64
  kBool,
  kBytes,      // u8
  kCodes,      // f8e4m3 (f64 in float64 programs)
  kGradients,  // f8e5m2, likewise
};

struct Operand {
  Shape shape;
  double low = -2.0, high = 2.0;  // of the values; integers take both ends
  Stored stored = Stored::kPlain;
  Holds holds = Holds::kTested;
  bool differentiable = true;  // false: the gradient rule treats it as a constant
};

struct OpCase {
  std::vector<Operand> operands;
  Attrs attrs = {};  // an attribute `dtype` that is missing is the dtype under test
  // Makes operands fit each other, where an op asks for that; empty: any values do.
  std::function<void(Tensors&)> settle = {};
  // Differs from others by kernels that a GPU alone has: left out where none is under test.
  bool is_for_gpus = false;
};

// The distance that a result may have from the float64 answer for the same (rounded) operands.
enum class Bound {
  kExact,    // nothing, once the answer is rounded to the result's dtype
  kResult,   // 16·2^-24 of the result
  kTerms,    // 16·2^-24 of Σ|terms|: the op itself on absolute operands
  kUnfused,  // twice the error of the op's own decomposition in the same dtype
  kBeside,   // less than the distance to the next number of the result's dtype
};

struct OpTest {
  std::string op;
  Bound bound = Bound::kResult;
  std::vector<OpCase> cases = {};
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF16};
  std::string terms_op = {};                // kTerms: computes Σ|terms| instead of the op itself
  std::vector<int> gradient_outputs = {0};  // results that gradients may flow from
  double floor_share = 16 * 0x1p-24;        // kUnfused: of the largest value, allowed in any case
};

// Prints the name of the op for a failing test.
std::ostream& operator<<(std::ostream& out, const OpTest& test);

// All records, in the order of families, with the cases for the back ends under test.
const std::vector<OpTest>& op_tests();

// An op without a kernel on a back end, and why that is right.
struct Unsupported {
  std::string backend, op, reason;
};
const std::vector<Unsupported>& unsupported_ops();

// --- the records of each family, for op_tests() ------------------------------------------------
std::vector<OpTest> elementwise_tests();
std::vector<OpTest> movement_tests();
std::vector<OpTest> product_tests();
std::vector<OpTest> composite_tests();
std::vector<OpTest> optimizer_tests();
std::vector<OpTest> attention_tests();

inline const std::vector<DType> kFloatingTypes{DType::kF32, DType::kBF16, DType::kF16};
inline const std::vector<DType> kNumberTypes{DType::kF32, DType::kBF16, DType::kF16,
                                             DType::kI64, DType::kI32,  DType::kU8};
inline const std::vector<DType> kAllTypes{DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                                          DType::kI32, DType::kU8,   DType::kBool};

Operand plain(Shape shape, double low = -2.0, double high = 2.0);
Operand stored(Shape shape, Stored how, double low = -2.0, double high = 2.0);
Operand wide(Shape shape, double low = -2.0, double high = 2.0);
// An operand of i64 indices in [0, size).
Operand indices(Shape shape, std::int64_t size);
// An operand that is the i64 `value`, of rank 0.
Operand position(std::int64_t value);
Operand constant(Operand operand);
OpCase for_gpus(OpCase one);
// Cases of odd, prime, empty, one-wide and strided shapes for an op on `count` equal operands.
std::vector<OpCase> elementwise_cases(int count, double low = -2.0, double high = 2.0);
// The record of an op that is held to twice the error of its decomposition.
OpTest composite(std::string op, std::vector<OpCase> cases, std::vector<int> gradient_outputs);
// Copies cases with other ranges or attributes.
std::vector<OpCase> with_attrs(std::vector<OpCase> cases, const Attrs& attrs);
std::vector<OpCase> with_range(std::vector<OpCase> cases, int operand, double low, double high);

}  // namespace tracestep::testing
