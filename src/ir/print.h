// The text form of a program. One line per leaf, node, update and output:
//
//   program "train" {
//     input %tokens : i64[4,128]
//     parameter %w : f32[10000,256]
//     %0 : f32[4,128,256] = gather(%w, %tokens) @ token_embeddings forward
//     update %w = %7
//     output "loss" = %5
//   }
//
// Results are numbered in order, so that parse(print(p)) == p and two prints can be compared.
#pragma once

#include <string>

#include "ir/program.h"

namespace tracestep {

struct PrintOptions {
  bool origins = true;     // True: print "@ path phase" and "by pass" at the end of a node.
  bool locations = false;  // True: print "file:line" after the phase.
};

std::string print(const Program& program, const PrintOptions& options = {});
std::string print(const AttrValue& value, const PrintOptions& options = {});

}  // namespace tracestep
