// The choices of a run that are more than one word of a list, as the texts that people write. The
// command line, files and the lab read them here; everything below works on the values.
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

// Each throws Error{kUsage} naming `where` for a text that is no choice.

// The inverses of name_of(); composites may be in any order.
RopeScaling parse_rope_scaling(const About& where, const std::string& text);
Granularity parse_granularity(const About& where, const std::string& text);
// "none", "blocks", "every=N", "nested", "budget=20GiB", or paths joined by "+".
Recomputation parse_recomputation(const About& where, const std::string& text);

// The parts of --lora: "r=N", "alpha=X", "targets=NAMES", "dropout=X", "rslora",
// "from=DIR" (a folder as PEFT writes it, which has all of these).
std::span<const SpecField<Adapters>> adapter_fields();
// "none", or some of these parts joined by commas; the rank is written always.
Adapters parse_adapters(const About& where, const std::string& text);
std::string name_of(const Adapters& choice);
// "none", or paths joined by "+".
FrozenParts parse_frozen(const About& where, const std::string& text);

// The parts of --parallel, in the order in which they are written: "dp=N", "shard=N", …, "sp".
std::span<const SpecField<Parallel>> parallel_fields();
// "none", or some of these parts joined by commas.
Parallel parse_parallel(const About& where, const std::string& text);
// The text that is parsed as this choice: the parts that are not as usual.
std::string name_of(const Parallel& choice);

}  // namespace tracestep
