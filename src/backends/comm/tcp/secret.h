// The secret of a run: 32 random bytes that its processes prove to each other that they know. It is
// never sent (handshake.h says how), logged or part of a message.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

using Secret = std::array<unsigned char, 32>;

// Returns bytes from the system's random source, for secrets and for nonces.
Secret random_bytes();
// Returns the secret as hexadecimal digits, in the form that secret_of_run() reads.
std::string hex_of(const Secret& secret);

// Returns a shell command that makes a file with a secret; it only needs coreutils.
std::string line_that_makes_secret(std::string_view file);

// Returns the secret in TRACESTEP_COMM_SECRET, which `launch` sets, or in the file that
// TRACESTEP_COMM_SECRET_FILE names; nullopt: neither is set. Throws Error{kUsage} for a malformed
// variable, and Error{kInput} for a file that cannot be read, belongs to another user, may be read
// by others, or holds anything else.
std::optional<Secret> secret_of_run();

}  // namespace tracestep
