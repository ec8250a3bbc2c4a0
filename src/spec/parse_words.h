// Parses choices of a run whose text is more than one word from a list. The command line, files and
// the lab parse them here; everything below works with the values.
#pragma once

#include <span>
#include <string>

#include "nn/config.h"
#include "run/adapters.h"
#include "run/granularity.h"
#include "run/parallel.h"
#include "run/recomputation.h"
#include "spec/spec_field.h"

namespace tracestep {

// Each function throws Error{kUsage} naming `where` for a text that is no choice.

// Parse the texts that name_of() writes; names of composites may be in any order.
RopeScaling parse_rope_scaling(const About& where, const std::string& text);
Granularity parse_granularity(const About& where, const std::string& text);
// Parses "none", "blocks", "every=N", "nested", "budget=20GiB", or paths joined by "+".
Recomputation parse_recomputation(const About& where, const std::string& text);

// The parts of --lora: "r=N", "alpha=X", "targets=NAMES", "dropout=X", "rslora",
// "from=DIR" (a folder as PEFT writes it, which has all of these).
std::span<const SpecField<Adapters>> adapter_fields();
// Parses "none", or some of these parts joined by commas; the rank is always required.
Adapters parse_adapters(const About& where, const std::string& text);
std::string name_of(const Adapters& choice);
// Parses "none", or paths joined by "+".
FrozenParts parse_frozen(const About& where, const std::string& text);

// The parts of --parallel, in the order in which they are written: "dp=N", "shard=N", …, "sp".
std::span<const SpecField<Parallel>> parallel_fields();
// Parses "none", or some of these parts joined by commas.
Parallel parse_parallel(const About& where, const std::string& text);
// The text of a choice: the parts that differ from the default. Parsing it gives the choice again.
std::string name_of(const Parallel& choice);

}  // namespace tracestep
