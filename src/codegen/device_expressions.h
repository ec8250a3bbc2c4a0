// Writes what ops compute as C++ expressions, which become the right-hand sides of a generated
// kernel. They use the names of the device text (codegen/device/, functors). The caller decides
// where operands are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ir/program.h"

namespace tracestep {

// Return the type of an element in memory ("BF16"), and of a variable that holds it ("float").
std::string_view element_type(DType dtype);
std::string_view variable_type(DType dtype);

// Writes the value, rounded to float32, as a float literal.
std::string literal(double value);
// Writes an expression for `x` after it was stored as this dtype and read back.
std::string rounded(DType dtype, const std::string& x);

struct DeviceExpressions {
  std::string before;  // A statement that must precede the expressions; usually empty.
  std::vector<std::string> results;  // An expression for each output.
};
// Writes expressions for an elementwise op; `operands` are the texts of its operands' elements.
DeviceExpressions device_expressions(const Program& program, const Node& node,
                                     std::span<const std::string> operands);

}  // namespace tracestep
