// The op matrix: every op × back end × dtype against the float64 oracle, from one record per op.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "backends/null/null_device.h"
#include "backends/op_bounds.h"
#include "backends/op_matrix.h"
#include "backends/reference/reference_device.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

// True if the case is to run: all are, unless TRACESTEP_TEST_CASES names some by their numbers
// ("0,3"). Memory checkers, under which every kernel takes long, then see a few shapes to their
// end.
bool is_wanted(std::size_t index) {
  const char* const asked = std::getenv("TRACESTEP_TEST_CASES");
  if (asked == nullptr) return true;
  return fmt::format(",{},", asked).find(fmt::format(",{},", index)) != std::string::npos;
}

// Calls f(case, program, dtype, what) for every case in every dtype that the op is tried with.
template <class F>
void for_each_case(const OpTest& test, F&& f) {
  for (DType dtype : test.dtypes) {
    for (std::size_t i = 0; i < test.cases.size(); ++i) {
      if (!is_wanted(i)) continue;
      const std::string what = describe(test, i, dtype);
      SCOPED_TRACE(what);
      f(test.cases[i], dtype);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The operands with all values and real attributes made positive: what the op makes of them is the
// sum of the absolute terms of each result.
std::vector<double> absolute_terms(const OpTest& test, const OpCase& c, DType dtype, Tensors leaves,
                                   const std::string& output) {
  OpTest positive = test;
  if (!test.terms_op.empty()) positive.op = test.terms_op;
  OpCase magnitudes = c;
  for (const auto& [name, value] : c.attrs.entries()) {
    if (const auto* real = std::get_if<double>(&value)) magnitudes.attrs.set(name, std::abs(*real));
  }
  for (auto& [name, tensor] : leaves) {
    std::vector<double> values = to_doubles(tensor);
    for (double& x : values) x = std::abs(x);
    tensor = from_doubles(tensor.dtype, tensor.shape, values);
  }
  const Program program = build_program(positive, magnitudes, {.dtype = dtype});
  return to_doubles(reference_values(program, leaves).at(output));
}

bool has_kernel(const Device& device, const std::string& op) {
  return device.has_kernel(find_op(op));
}

bool any(const OpTest&) {
  return true;
}
bool donates(const OpTest& test) {
  return !find_op(test.op).donates.empty();
}
bool writes_parts(const OpTest& test) {
  return static_cast<bool>(find_op(test.op).writes);
}
bool has_several_results(const OpTest& test) {
  return find_op(test.op).outputs.size() > 1;
}

class OpMatrixTest : public ::testing::TestWithParam<OpTest> {};
class DonatingOpTest : public ::testing::TestWithParam<OpTest> {};
class WritingOpTest : public ::testing::TestWithParam<OpTest> {};
class ManyResultsTest : public ::testing::TestWithParam<OpTest> {};

TEST_P(OpMatrixTest, EveryBackendAgreesWithTheReference) {
  const OpTest& test = GetParam();
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    if (!has_kernel(*device, test.op)) continue;  // its parts have records of their own
    for_each_case(test, [&](const OpCase& c, DType dtype) {
      const Program program = build_program(test, c, {.dtype = dtype});
      const Tensors leaves = leaf_values(program, c);
      const Tensors actual = run_program(*device, program, leaves);
      const Tensors expected = reference_values(program, leaves);
      Tensors parts;
      if (test.bound == Bound::kUnfused) {
        const Program unfused = decompose(program, [](const OpDef&) { return true; });
        parts = run_program(*device, unfused, leaves);
      }
      for (const auto& [name, tensor] : actual) {
        SCOPED_TRACE(backend.name + " " + name);
        const std::vector<double> exact = to_doubles(expected.at(name));
        std::string fault;
        switch (test.bound) {
          case Bound::kExact: fault = exact_fault(tensor, expected.at(name)); break;
          case Bound::kBeside: fault = beside_fault(tensor, exact); break;
          case Bound::kResult: fault = terms_fault(tensor, exact, exact); break;
          case Bound::kTerms:
            fault = terms_fault(tensor, exact, absolute_terms(test, c, dtype, leaves, name));
            break;
          case Bound::kUnfused:
            fault = parts_fault(tensor, parts.at(name), exact, test.floor_share * max_abs(exact));
            break;
        }
        ASSERT_EQ(fault, "");
      }
    });
  }
}

void expect_same_bytes(const Tensors& actual, const Tensors& expected) {
  for (const auto& [name, tensor] : actual) {
    EXPECT_TRUE(tensor.bytes == expected.at(name).bytes) << name << " has other bits";
  }
}

TEST_P(DonatingOpTest, ResultsAreTheSameInTheStorageOfAnOperand) {
  const OpTest& test = GetParam();
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    if (!has_kernel(*device, test.op)) continue;
    for_each_case(test, [&](const OpCase& c, DType dtype) {
      const Program plain = build_program(test, c, {.dtype = dtype});
      const Program donating = build_program(test, c, {.dtype = dtype, .donate = true});
      const Tensors leaves = leaf_values(plain, c);
      expect_same_bytes(run_program(*device, donating, leaves),
                        run_program(*device, plain, leaves));
    });
  }
  const auto oracle = make_reference_device({.guarded = true});
  for (const OpCase& c : test.cases) {
    const Program plain = build_program(test, c, {});
    const Tensors leaves = leaf_values(plain, c);
    expect_same_bytes(run_program(*oracle, build_program(test, c, {.donate = true}), leaves),
                      run_program(*oracle, plain, leaves));
  }
}

TEST_P(ManyResultsTest, AResultIsTheSameWhenNobodyReadsTheOthers) {
  const OpTest& test = GetParam();
  const auto results = static_cast<int>(find_op(test.op).outputs.size());
  std::vector<std::unique_ptr<Device>> devices;
  for (const Backend& backend : backends_under_test())
    devices.push_back(backend.make({.threads = 2, .guarded = true}));
  devices.push_back(make_reference_device({.guarded = true}));
  for (const auto& device : devices) {
    if (!has_kernel(*device, test.op)) continue;
    const DType dtype = device->supports(DType::kF32) ? DType::kF32 : DType::kF64;
    for (const OpCase& c : test.cases) {
      const Program all = build_program(test, c, {.dtype = dtype});
      const Tensors leaves = leaf_values(all, c);
      const Tensors expected = run_program(*device, all, leaves);
      for (int i = 0; i < results; ++i) {
        const Program one = build_program(test, c, {.dtype = dtype, .results = {i}});
        expect_same_bytes(run_program(*device, one, leaves), expected);
      }
    }
  }
}

DType first_floating(const OpTest& test) {
  return *std::ranges::find_if(test.dtypes, is_floating);
}

// The results as parts of assemblies, between values that must stay as they are.
Program build_assembled(const OpTest& test, const OpCase& c, DType dtype) {
  const Program plain = build_program(test, c, {.dtype = dtype});
  Rewriter r(plain, "test");
  for (const Node& node : plain.nodes) r.copy(node);
  for (const Output& o : plain.outputs) {
    const Val y = r.map(o.value);
    if (y.shape().empty() || y.type().count() == 0) continue;
    const DType made = is_float8(y.dtype()) ? DType::kF32 : y.dtype();
    const Val margin = ops::cast(ops::fill(r.builder(), 1.0, {made, y.shape()}), y.dtype());
    const Val whole = r.builder().call1("assemble", {ops::copy(margin), y, ops::copy(margin)},
                                        {{"axis", std::int64_t{y.shape().rank() - 1}}});
    r.builder().output("whole " + o.name, whole);
    const std::int64_t n = y.dim(-1);
    r.replace(o.value, ops::slice(whole, y.shape().rank() - 1, n, 2 * n));
  }
  return r.finish();
}

TEST_P(WritingOpTest, ResultsAreTheSameAsPartsOfAnAssembly) {
  const OpTest& test = GetParam();
  std::vector<std::unique_ptr<Device>> devices;
  for (const Backend& backend : backends_under_test())
    devices.push_back(backend.make({.threads = 2, .guarded = true}));
  devices.push_back(make_reference_device({.guarded = true}));
  for (const auto& device : devices) {
    if (!has_kernel(*device, test.op)) continue;
    const bool is_oracle = !device->supports(DType::kF32);
    for_each_case(test, [&](const OpCase& c, DType dtype) {
      if (is_oracle && is_floating(dtype)) {
        if (dtype != first_floating(test)) return;  // float64 stands for all of them
        dtype = DType::kF64;
      }
      const Program plain = build_program(test, c, {.dtype = dtype});
      const Program parts = build_assembled(test, c, dtype);
      const Tensors leaves = leaf_values(plain, c);
      const Tensors expected = run_program(*device, plain, leaves);
      Tensors actual = run_program(*device, parts, leaves);
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(actual.at(name).bytes == tensor.bytes) << name << " has other bits";
        const auto whole = actual.find("whole " + name);
        if (whole == actual.end()) continue;
        const std::vector<double> all = to_doubles(whole->second);
        const auto width = static_cast<std::size_t>(tensor.shape.back());
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (i / width % 3 == 1) continue;
          ASSERT_EQ(all[i], 1.0) << name << " wrote beside its part";
        }
      }
    });
  }
}

TEST_P(OpMatrixTest, TheNumberOfThreadsDoesNotChangeABit) {
  const OpTest& test = GetParam();
  for (const Backend& backend : backends_under_test()) {
    const auto one = backend.make({.threads = 1, .guarded = true}),
               three = backend.make({.threads = 3, .guarded = true});
    if (!has_kernel(*one, test.op)) continue;
    for_each_case(test, [&](const OpCase& c, DType dtype) {
      const Program program = build_program(test, c, {.dtype = dtype});
      const Tensors leaves = leaf_values(program, c);
      expect_same_bytes(run_eagerly(*three, program, leaves), run_eagerly(*one, program, leaves));
    });
  }
}

TEST_P(OpMatrixTest, TheNullDeviceRunsWhateverItStandsFor) {
  const OpTest& test = GetParam();
  const auto device = make_null_device();
  for_each_case(test, [&](const OpCase& c, DType dtype) {
    const Program program = build_program(test, c, {.dtype = dtype});
    run_program(*device, program, leaf_values(program, c));
  });
}

INSTANTIATE_TEST_SUITE_P(All, OpMatrixTest, ::testing::ValuesIn(records(any)), name_of_record);
INSTANTIATE_TEST_SUITE_P(All, DonatingOpTest, ::testing::ValuesIn(records(donates)),
                         name_of_record);
INSTANTIATE_TEST_SUITE_P(All, WritingOpTest, ::testing::ValuesIn(records(writes_parts)),
                         name_of_record);
INSTANTIATE_TEST_SUITE_P(All, ManyResultsTest, ::testing::ValuesIn(records(has_several_results)),
                         name_of_record);

// --- nothing is forgotten ----------------------------------------------------------------------
bool needs_record(const OpDef& op) {
  return op.has_launches() && op.kernel_class != KernelClass::kFused &&
         op.find_attr("ranks") == nullptr;  // a group's: tests/session/ranks_test.cpp
}

TEST(OpMatrixSupportTest, EveryOpHasExactlyOneRecord) {
  ops::register_all();
  std::multiset<std::string> recorded;
  for (const OpTest& test : op_tests()) {
    EXPECT_FALSE(test.cases.empty()) << test.op;
    recorded.insert(test.op);
  }
  for (const OpDef* op : all_ops()) {
    EXPECT_EQ(recorded.count(op->name), needs_record(*op) ? 1U : 0U) << op->name;
  }
}

TEST(OpMatrixSupportTest, EveryOpHasAKernelOnEveryBackendOrAReasonWhyNot) {
  ops::register_all();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_reference_device());
  devices.push_back(make_null_device());
  for (const Backend& backend : backends_under_test())
    devices.push_back(backend.make({.threads = 1, .guarded = true}));
  for (const auto& device : devices) {
    for (const OpDef* op : all_ops()) {
      if (!op->has_launches()) continue;
      // Ops of a group of ranks that are made of collectives never run as one.
      if (op->find_attr("ranks") != nullptr && op->always_decompose) continue;
      // A GPU has fused nodes only with NVRTC, which may be missing.
      if (op->kernel_class == KernelClass::kFused && device->name().starts_with("cuda")) continue;
      const auto listed = std::ranges::find_if(unsupported_ops(), [&](const Unsupported& u) {
        return device->name().starts_with(u.backend) && u.op == op->name && !u.reason.empty();
      });
      EXPECT_NE(listed != unsupported_ops().end(), device->has_kernel(*op))
          << op->name << " on " << device->name();
    }
  }
}

TEST(OpMatrixSupportTest, WhatHasNoKernelAnywhereHasADecomposition) {
  ops::register_all();
  for (const Unsupported& u : unsupported_ops()) {
    const OpDef& op = find_op(u.op);
    EXPECT_TRUE(op.decompose || op.kernel_class == KernelClass::kCollective) << u.op;
  }
}

}  // namespace
}  // namespace tracestep::testing
