// A variable of the environment with another text for a while.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace tracestep {

// Sets a variable for one test and puts the old text back.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* text) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, text, 1);
  }
  ~ScopedVariable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace tracestep
