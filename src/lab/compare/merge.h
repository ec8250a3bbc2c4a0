// Turns stored results back into documents, for joining results of cluster jobs or of several
// processes.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// The document of a JSON result that a command wrote. Rows of `bench` are judged again, with each
// other. Throws Error{kInput} naming `where` if it is no result.
Document document_of(const Json& result, const std::string& where);

// The difference that makes rows of two environments incomparable: "cpu A and B"; empty: there is
// none.
std::string other_machine(const Json& first, const Json& other);

}  // namespace tracestep
