// Merges the results of several runs of one command, each with a part of its cells, into one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

struct PartResult {
  std::string name;   // of the file, for messages
  std::string label;  // the values that only it has: "tiny 64 step"
  Json document;      // as a command writes it in the format json
};

// `divided`: the columns in which the parts differ. A table that is the same in all parts is there
// once. The rows of the first table, and of every other one that names the cells of its rows (in a
// column "cell", or in all divided columns), stand one behind the other in the order of the parts;
// of any other table each part has its own, "NAME@LABEL". Rows of `bench` are judged again, beside
// each other. A note that not all parts have begins with the label of its part. The environment is
// that of the first part; a note says where the others had another machine or build. Error{kInput}
// when a part is no result, or of another command than the first.
Document merged(std::span<const PartResult> parts, std::span<const std::string> divided);

// "cpu A and B": what makes rows of two environments incomparable; empty: nothing.
std::string other_machine(const Json& first, const Json& other);

}  // namespace tracestep
