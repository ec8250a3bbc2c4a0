// The battery of what makes a step fit: --count N [--seed S] [--layers L] asks N random questions
// (tests/lab/fit/fit_questions.h) from number S * 1000000 on, of models with L layers where that
// is given, and prints what does not hold with the question's number. The last line is a summary in
// JSON. Status 1 when there was a fault.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "lab/fit/fit_questions.h"
#include "ops/functions.h"
#include "spec/fields.h"

namespace tracestep {

static int run(unsigned first, unsigned count, unsigned layers) {
  unsigned faults = 0;
  for (unsigned number = first; number < first + count; ++number) {
    std::mt19937 random(number);
    testing::FitCase question = testing::random_case(random);
    if (layers > 0) question.step.model.layers = layers;
    std::string fault;
    try {
      fault = testing::fault_of(question);
    } catch (const std::exception& error) {
      fault = error.what();
    }
    if (fault.empty()) continue;
    ++faults;
    fmt::print("question {}: {}, {} ranks{}: {}\n", number, label_of(question.step),
               question.parallels.empty() ? 1 : question.parallels.front().ranks,
               question.has_micro_batches ? ", micro-batches" : "", fault);
    std::fflush(stdout);
  }
  fmt::print("{{\"runs\": {}, \"faults\": {}}}\n", count, faults);
  return faults == 0 ? 0 : 1;
}

}  // namespace tracestep

int main(int count, char** words) {
  unsigned number = 20, seed = 1, layers = 0;
  for (int i = 1; i + 1 < count; i += 2) {
    unsigned& value = std::strcmp(words[i], "--seed") == 0     ? seed
                      : std::strcmp(words[i], "--layers") == 0 ? layers
                                                               : number;
    value = static_cast<unsigned>(std::strtoul(words[i + 1], nullptr, 10));
  }
  tracestep::ops::register_all();
  tracestep::testing::register_fit_devices();
  return tracestep::run(seed * 1'000'000, number, layers);
}
