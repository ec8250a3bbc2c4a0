// What the pieces of a text say together: a figure and the noun or unit behind it, figures and the
// row that a label before them names, a ratio and the two things it stands between.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lab/report/statement.h"
#include "lab/study/formula.h"

namespace tracestep::testing {

class Context {
 public:
  Context(const std::vector<Piece>& pieces, std::span<const Table> tables);

  // What is wrong with a piece beside its neighbours; empty when nothing is.
  std::string wrong_at(std::size_t piece) const;

 private:
  std::string wrong_unit_or_noun(std::size_t piece) const;
  std::string wrong_label(std::size_t piece) const;
  std::string wrong_direction(std::size_t piece) const;
  const std::string& words(std::size_t piece) const;  // empty beyond the last one
  bool is_quote(std::size_t piece) const;

  const std::vector<Piece>& pieces_;
  std::span<const Table> tables_;
  std::map<std::size_t, std::string> size_of_;  // of the label over each piece
};

}  // namespace tracestep::testing
