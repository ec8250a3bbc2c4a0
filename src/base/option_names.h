// How texts for people name options: as the flags of a command, where one runs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tracestep {

using OptionNames = std::function<std::string(std::string_view name)>;

// While it lives, Error::what() and Error::text() show the marks of options by `names`, and else as
// "option NAME". For the front end, around all that it runs: errors also end in rows and in logs,
// which are written where no flag is known. Not to be made while other threads make errors.
class NamedOptions {
 public:
  explicit NamedOptions(OptionNames names);
  ~NamedOptions();
  NamedOptions(const NamedOptions&) = delete;
  NamedOptions& operator=(const NamedOptions&) = delete;
};

}  // namespace tracestep
