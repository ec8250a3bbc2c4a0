// Formulas of claims: arithmetic over names and over figures that are looked up, evaluated, and
// printed with the numbers that went in.
//
//   4*B*T^2*C / devices.fp32_tflops[A100 40 GB]
//
// holds + - * / ^ and brackets, min(…) and max(…), names of values, and look-ups
// `source.what[key; key]`, whose keys are plain text. What a source knows is the caller's to say.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct LookUp {
  std::string source, what;
  std::vector<std::string> keys;
};

struct Evaluated {
  double value = 0;
  std::string numbers;  // the formula with a number in place of each name and look-up
};

// CHECKs that the text is such a formula and that every name in it is known: formulas are ours.
Evaluated evaluate(std::string_view formula,
                   const std::map<std::string, double, std::less<>>& names,
                   const std::function<double(const LookUp&)>& look_up);

// "3,406,809,600", "0.01000214", "1.5e-05": up to seven digits, whole numbers with all of theirs.
std::string plain_number(double value);

}  // namespace tracestep
