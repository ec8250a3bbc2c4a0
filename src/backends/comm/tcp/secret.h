// The secret of a run: 32 random bytes that its processes prove to each other that they know. It is
// never sent (handshake.h says how), logged or part of a message.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

using Secret = std::array<unsigned char, 32>;

// Bytes of the system's random source: for a secret, and for what a handshake uses once.
Secret random_bytes();
// The secret in hexadecimal digits, as secret_of_run() reads it.
std::string hex_of(const Secret& secret);

// A shell command that makes a file with a secret, wherever there are coreutils.
std::string line_that_makes_secret(std::string_view file);

// The secret in TRACESTEP_COMM_SECRET, which `launch` sets, or else in the file that
// TRACESTEP_COMM_SECRET_FILE names; nullopt where neither is set. Error{kUsage} for a malformed
// variable; Error{kInput} for a file that cannot be read, is not of this user, may be read by
// others, or holds something else.
std::optional<Secret> secret_of_run();

}  // namespace tracestep
