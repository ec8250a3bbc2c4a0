// Writes what ops compute as C++ expressions in the terms of the device text (codegen/device/,
// functors): the right-hand sides of a generated kernel. The caller decides where operands lie.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ir/program.h"

namespace tracestep {

// The types of an element in memory ("BF16"), and of the variable that holds it ("float").
std::string_view element_type(DType dtype);
std::string_view variable_type(DType dtype);

// A float literal with the value rounded to float32.
std::string literal(double value);
// `x` as it is read back from a result of this dtype.
std::string rounded(DType dtype, const std::string& x);

struct DeviceExpressions {
  std::string before;                // a statement that they need; usually empty
  std::vector<std::string> results;  // one for each output
};
// Expressions for an elementwise op; `operands` are the texts of its operands' elements.
DeviceExpressions device_expressions(const Program& program, const Node& node,
                                     std::span<const std::string> operands);

}  // namespace tracestep
