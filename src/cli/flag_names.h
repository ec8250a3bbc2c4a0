// Errors and help texts of the lower layers name fields ("heads", "option token_dtype"); users of
// the program know flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/option_set.h"

namespace tracestep::cli {

// The flag of a field ("--token-dtype" for "token_dtype"); empty when the command has none for it.
std::string flag_of(const OptionSet& options, std::string_view field);

// `text` with flags for what follows "option" or, as a list, "options": "give option size, or
// options layers and heads" becomes "give --size, or --layers and --heads". Words that are no
// options of the command stay as they are.
std::string with_flags(const OptionSet& options, std::string_view text);

// An error of the lower layers in the words of the command line. `arguments`: a file that the user
// named there keeps its name, though it be that of a field.
Error in_flags(const OptionSet& options, const Error& error,
               std::span<const std::string> arguments);

}  // namespace tracestep::cli
