// Questions that stand apart: training, published tables.
#include "lab/study/answers.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

std::string training(const Evidence& e) {
  const bool had_memory = !e.find("parts", {{"part", "training"}, {"status", "out of memory"}});
  require(had_memory, "training ran out of memory");
  const std::vector<Row> rows = e.rows("training");
  require(rows.size() >= 2, "there is one step only");
  const double first = rows.front().number("loss"), last = rows.back().number("loss");
  std::string out = fmt::format("After {} steps the loss is {:.3f}, from {:.3f}. ",
                                rows.back().whole("step"), last, first);
  if (!(last < first)) return out + "The model did not learn.";
  if (const auto validation = rows.back().number_if("validation_loss")) {
    out += fmt::format("On text that is not trained on it is {:.3f}. ", *validation);
  }
  return out + (last < 0.8 * first ? "The model learns." : "The model learns, but little so far.");
}

std::string published(const Evidence& e) {
  std::int64_t cells = 0, agree = 0, explainable = 0, suspicious = 0, most = 0;
  std::string worst;
  for (const Row& row : e.rows("published")) {
    cells += row.whole("cells");
    agree += row.whole("agree");
    explainable += row.whole("explainable");
    suspicious += row.whole("suspicious");
    if (row.whole("suspicious") > most) {
      most = row.whole("suspicious");
      worst = fmt::format("study {}, {}", row.text("study"), row.text("table"));
    }
  }
  require(cells > 0, "there are no published cells");
  return fmt::format(
      "Of {} published figures {} agree with this run or with the program, {} differ for a reason "
      "that their own figures show, and {} are suspicious{}. {}",
      cells, agree, explainable, suspicious,
      most > 0 ? fmt::format(" (most of them in {})", worst) : "",
      agree == 0 ? "None was held against a cell of the same size here."
                 : "Agreement is up to the pace of the two devices.");
}

constexpr Question kOther[] = {
    {"training", "Training", "Does the loss fall?", "tracestep train", training},
    {"published", "Published tables", "Do the published tables agree with this run?",
     "tracestep study", published},
};

}  // namespace

std::span<const Question> other_questions() {
  return kOther;
}

}  // namespace tracestep
