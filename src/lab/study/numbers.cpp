#include "lab/study/numbers.h"

#include <algorithm>
#include <iterator>

namespace tracestep {
namespace {

struct Numbered {
  std::string_view number, question;
};

// In the order in which a reader of the handout looks for them, topics together; what it does not
// ask, but what belongs to a topic, has no number.
constexpr Numbered kAll[] = {
    {"1.1.3 b", "pass-times"},
    {"1.1.3 b", "sizes"},
    {"1.1.3 b", "contexts"},
    {"1.1.3 b", "validity"},
    {"1.1.3 c", "warm-up"},
    {"", "fused"},
    {"1.1.4 a", "clocks"},
    {"1.1.4 b", "top-kernel"},
    {"1.1.4 b", "launches"},
    {"1.1.4 c", "other-kernels"},
    {"1.1.4 c", "components"},
    {"1.1.4 d", "product-share"},
    {"1.1.4 e", "softmax"},
    {"1.1.4 e", "bound"},
    {"1.1.5, accumulation", "sums"},
    {"1.1.5, accumulation", "stalls"},
    {"1.1.5 a", "dtypes"},
    {"1.1.5 b", "norms"},
    {"1.1.5 b", "formats"},
    {"1.1.5 c", "lower-precision"},
    {"1.1.5 c", "precision-by-size"},
    {"1.1.5 c", "scores-by-precision"},
    {"1.1.6 a", "memory-timeline"},
    {"1.1.6 b", "peaks"},
    {"1.1.6 b", "which-forward"},
    {"1.1.6 b", "static-bytes"},
    {"1.1.6 b", "activation-formula"},
    {"1.1.6 b", "two-graphs"},
    {"1.1.6 c", "low-precision-memory"},
    {"1.1.6 d", "residual"},
    {"1.1.6 e", "largest-buffers"},
    {"1.1.6 e", "component-bytes"},
    {"1.1.6 e", "attribution"},
    {"1.1.6 e", "saved-operations"},
    {"1.2.1 a", "attention-times"},
    {"1.2.1 a", "attention-bytes"},
    {"1.2.1 a", "attention-limit"},
    {"1.2.1 a", "attention-variants"},
    {"1.2.1 a", "attention-cure"},
    {"1.2.2 a", "compiled-attention"},
    {"1.2.2 b", "compiled"},
    {"1.2.2 b", "compiled-memory"},
    {"1.2.2 b", "compiled-start"},
    {"1.2.2 b", "compiled-saved"},
    {"1.2.2 b", "ladder"},
};

const Numbered* find(std::string_view question) {
  return std::ranges::find(kAll, question, &Numbered::question);
}

}  // namespace

std::string_view number_of(std::string_view question) {
  const Numbered* found = find(question);
  return found == std::end(kAll) ? std::string_view() : found->number;
}

std::size_t place_of(std::string_view question) {
  return static_cast<std::size_t>(find(question) - std::begin(kAll));
}

}  // namespace tracestep
