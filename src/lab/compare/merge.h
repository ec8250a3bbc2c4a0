// Results as documents again, whoever measured them: a job of a cluster, or several processes.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// The tables of a result as a command writes it in the format json. Rows of `bench` are judged
// again, beside each other. Error{kInput} naming `where` for what is no result.
Document document_of(const Json& result, const std::string& where);

// "cpu A and B": what makes rows of two environments incomparable; empty: nothing.
std::string other_machine(const Json& first, const Json& other);

}  // namespace tracestep
