#include "backends/op_bounds.h"

#include <cmath>

#include <fmt/format.h>

#include "support/host_values.h"

namespace tracestep::testing {
namespace {

constexpr double kFloat32Terms = 16.0 * 0x1p-24;
constexpr double kRoundings = 1.02;
constexpr double kLeastFloat32 = 0x1p-149;  // of which subnormal results are multiples

std::string element_fault(std::size_t i, double got, double expected) {
  return fmt::format("element {} is {}, not {}", i, got, expected);
}

}  // namespace

std::string exact_fault(const HostTensor& actual, const HostTensor& answer) {
  if (actual.shape != answer.shape) return "another shape";
  const std::vector<double> got = to_doubles(actual);
  const std::vector<double> rounded = to_doubles(converted(answer, actual.dtype));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != rounded[i]) return element_fault(i, got[i], rounded[i]);
  }
  return {};
}

std::string terms_fault(const HostTensor& actual, const std::vector<double>& answer,
                        const std::vector<double>& terms) {
  const std::vector<double> got = to_doubles(actual);
  if (got.size() != answer.size()) return "another shape";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == answer[i] || (std::isnan(got[i]) && std::isnan(answer[i]))) continue;
    double bound =
        is_floating(actual.dtype) ? kFloat32Terms * std::abs(terms[i]) + kLeastFloat32 : 0.0;
    if (is_low_precision(actual.dtype)) {
      bound += 0.5 * kRoundings * ulp(actual.dtype, std::abs(answer[i]) + bound);
    }
    if (!(std::abs(got[i] - answer[i]) <= bound)) return element_fault(i, got[i], answer[i]);
  }
  return {};
}

std::string beside_fault(const HostTensor& actual, const std::vector<double>& answer) {
  const std::vector<double> got = to_doubles(actual);
  if (got.size() != answer.size()) return "another shape";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool is_near = std::abs(got[i] - answer[i]) < ulp(actual.dtype, answer[i]);
    const bool are_nan = std::isnan(got[i]) && std::isnan(answer[i]);
    if (got[i] != answer[i] && !is_near && !are_nan) return element_fault(i, got[i], answer[i]);
  }
  return {};
}

std::string parts_fault(const HostTensor& actual, const HostTensor& parts,
                        const std::vector<double>& answer, double floor) {
  if (is_low_precision(actual.dtype)) {
    floor += 0.5 * kRoundings * ulp(actual.dtype, max_abs(answer));
  }
  const double error = max_difference(to_doubles(actual), answer),
               unfused = max_difference(to_doubles(parts), answer);
  if (error <= 2.0 * unfused + floor) return {};
  return fmt::format("off by {}, the parts by {}", error, unfused);
}

}  // namespace tracestep::testing
