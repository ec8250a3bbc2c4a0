#include "support/random_step.h"

#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spec/fields.h"

namespace tracestep::testing {
namespace {

bool is_drawn(const RunField& field) {
  const bool changes_a_step = field.role == FieldRole::kProgram || field.role == FieldRole::kSpeed;
  return changes_a_step && !(field.choices.empty() && field.examples.empty()) &&
         field.group != FieldGroup::kModel;
}

// Joins some of the field's examples, in random order.
std::string joined(Dice& dice, const RunField& field) {
  std::vector<std::string> left = field.examples, out;
  for (std::int64_t count = dice.between(2, 4); count > 0 && !left.empty(); --count) {
    const auto at = left.begin() + dice.between(0, std::ssize(left) - 1);
    out.push_back(*at);
    left.erase(at);
  }
  return fmt::format("{}", fmt::join(out, std::string(1, field.joint)));
}

RunChange random_change(Dice& dice, const RunField& field) {
  std::vector<std::string> all = field.choices;
  all.insert(all.end(), field.examples.begin(), field.examples.end());
  while (true) {
    const bool joins = field.joint != 0 && dice.chance(0.6);
    try {
      return field.parse(field.flag, joins ? joined(dice, field) : dice.pick(all));
    } catch (const Error&) {
      // These examples do not go together.
    }
  }
}

}  // namespace

RunSpec random_step(Dice& dice, RunSpec base, double kept) {
  for (const RunField& field : run_fields()) {
    if (!is_drawn(field) || dice.chance(kept)) continue;
    // A part alone may mean nothing, as shard=1 without dp=N: then it is drawn again.
    RunSpec changed = base;
    while (text_of(field, changed) == text_of(field, base)) random_change(dice, field)(changed);
    base = changed;
  }
  return base;
}

RunSpec random_small_model(Dice& dice) {
  RunSpec out;
  const std::int64_t heads = dice.pick({2, 4});
  out.model = {.name = "custom",
               .vocab = dice.pick({26, 27, 64}),
               .d_model = heads * dice.pick({4, 8}),
               .d_ff = dice.pick({16, 24}),
               .layers = dice.between(1, 3),
               .heads = heads};
  out.shape = {.batch = dice.pick({2, 4}), .context = dice.pick({6, 8})};
  return out;
}

std::string text_of_step(const RunSpec& spec) {
  std::vector<std::string> out;
  for (const RunField& field : run_fields()) {
    if (is_drawn(field)) out.push_back(field.flag + " " + text_of(field, spec));
  }
  return fmt::format("{}", fmt::join(out, " "));
}

}  // namespace tracestep::testing
