// Helpers of the op matrix's tests: programs made from the records of op_cases.h.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/op_cases.h"
#include "ir/op_def.h"
#include "support/backends.h"
#include "support/run_program.h"

namespace tracestep::testing {

struct BuildOptions {
  DType dtype = DType::kF64;
  // Operands are first copied, so that the op may write over the copies.
  bool donate = false;
  // The results to read; empty: all.
  std::vector<int> results = {};
};

// Builds the program of a case: leaves "x0", "x1", … as stored; outputs "y0", "y1", …
Program build_program(const OpTest& test, const OpCase& c, const BuildOptions& options);
// Adds a rank-0 output "loss" to that program: the sum of the differentiable results, weighted by
// the inputs "w0", "w1", …
Program build_loss(const OpTest& test, const OpCase& c);

// Random values for the leaves of either program, in the ranges of the operands.
Tensors leaf_values(const Program& program, const OpCase& c);

// The records for which `wanted` holds, and how a test made from one is called.
std::vector<OpTest> records(bool (*wanted)(const OpTest&));
std::string name_of_record(const ::testing::TestParamInfo<OpTest>& of);

// Names a case: "rms_norm case 3 f32: [5,7] transposed [7]".
std::string describe(const OpTest& test, std::size_t index, DType dtype);

}  // namespace tracestep::testing
