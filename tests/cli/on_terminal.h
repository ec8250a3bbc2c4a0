// Runs the program on a terminal that a test makes, and returns what a person would read there.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

namespace tracestep {

// Says why no terminal can be made here; empty: one can.
std::string no_terminal();

// The text that the program prints to a terminal of so many columns: output, or messages.
std::string on_terminal(const std::string& arguments, unsigned short columns,
                        std::vector<std::string> environment = {}, int stream = STDOUT_FILENO);

// The headers of the first table in a text, those of several lines in one.
std::vector<std::string> headers_of(const std::string& text);

}  // namespace tracestep
