// Words as a shell reads them back.
#pragma once

#include <span>
#include <string>

namespace tracestep {

// Returns `word` in quotes if it contains anything but letters, digits and -_./,:=+@%.
std::string shell_quoted(const std::string& word);
// Returns all `words`, each as shell_quoted(), separated by spaces.
std::string shell_quoted(std::span<const std::string> words);

}  // namespace tracestep
