// Published sentences that are wrong, each with the right figure, its derivation from named
// figures, and a command that shows it. Words and formulas are in claims/; published numbers come
// from data/, and all others are computed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/pages/page.h"
#include "lab/report/table.h"

namespace tracestep {

struct Claim {
  std::string row;      // The row of the study: "X12".
  std::string studies;  // The studies that say so: "C, B, E".
  std::string topic;    // The topic of `explain` to which the claim belongs.
  // The model whose B, T, C, F, H, D, L, V and P formulas may name, at batch 4.
  std::string size = {};
  std::int64_t context = 0;
  // The wrong and the right sentence, with placeholders for values.
  std::string claimed = {}, right = {};
  std::vector<pages::Figure> lines = {};  // The lines of the derivation.
  // The command without the program's name: "memory --predict --size 2.7B".
  std::string command = {};
};

// All claims in the study's order. CHECKs their form.
const std::vector<Claim>& claims();
// The claims whose row or topic is `words`; if there are none, those that contain all of the words,
// in any case. Without words, all claims.
std::vector<const Claim*> find_claims(std::string_view words);

// A note that names a topic's claims: "published claims that do not hold: X05, X07 (tracestep
// explain --claims softmax)"; empty: there are none.
std::string claims_note(std::string_view topic);

// A row for each line of the derivation; notes give the claim and the right sentence.
Table derivation(const Claim& claim);
// A row for each claim: row, studies, topic, what is claimed, what is right, the command.
Table claim_table(const std::vector<const Claim*>& found);
// The text of docs/claims.md.
std::string claims_page();

}  // namespace tracestep
