// Published sentences that do not hold: each with the right figure, its derivation from named
// figures, and a command that shows it. The words and formulas are in claims/; published numbers
// are looked up in data/, all others computed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/pages/page.h"
#include "lab/report/table.h"

namespace tracestep {

struct Claim {
  std::string row;        // of the study: "X12"
  std::string studies;    // who says so: "C, B, E"
  std::string topic;      // of explain
  std::string size = {};  // whose B, T, C, F, H, D, L, V and P formulas may name, at batch 4
  std::int64_t context = 0;
  std::string claimed = {}, right = {};   // with placeholders for values
  std::vector<pages::Figure> lines = {};  // the derivation
  std::string command = {};               // "memory --predict --size 2.7B"
};

// All of them, in the study's order. CHECKs their form.
const std::vector<Claim>& claims();
// The claims whose row or topic is `words`, or, when there are none, that contain all of its words,
// in any case. Empty words: all.
std::vector<const Claim*> find_claims(std::string_view words);

// "published claims that do not hold: X05, X07 (tracestep explain --claims softmax)"; empty: none
// of this topic.
std::string claims_note(std::string_view topic);

// Rows: the lines of the derivation; the claim and what is right are notes below.
Table derivation(const Claim& claim);
// Rows: claims; columns: row, who, topic, what is claimed, what is right, the command.
Table claim_table(const std::vector<const Claim*>& found);
// docs/claims.md.
std::string claims_page();

}  // namespace tracestep
