#include "run/recomputation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"

namespace tracestep {

std::string name_of(const Recomputation& choice) {
  switch (choice.kind) {
    case Recomputation::Kind::kNone: return "none";
    case Recomputation::Kind::kNested: return "nested";
    case Recomputation::Kind::kBudget:
      return fmt::format("budget={}", exact_bytes(choice.budget_bytes));
    case Recomputation::Kind::kParts: break;
  }
  if (choice.every > 1) return fmt::format("every={}", choice.every);
  return choice == Recomputation::blocks() ? "blocks"
                                           : fmt::format("{}", fmt::join(choice.paths, "+"));
}

}  // namespace tracestep
