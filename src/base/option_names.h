// Sets how texts for people name options: as the flags of the running command, if there is one.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tracestep {

using OptionNames = std::function<std::string(std::string_view name)>;

// While this object exists, Error::what() and Error::text() replace marks of options by `names`;
// otherwise they print "option NAME". The front end makes one around everything it runs, because
// errors also end up in rows and logs, which are written where no flag is known. Do not make one
// while other threads make errors.
class NamedOptions {
 public:
  explicit NamedOptions(OptionNames names);
  ~NamedOptions();
  NamedOptions(const NamedOptions&) = delete;
  NamedOptions& operator=(const NamedOptions&) = delete;
};

}  // namespace tracestep
