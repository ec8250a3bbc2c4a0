// Random numbers as a function of (seed, stream name, index): there is no state, so every value is
// the same on every device, in any order of calls and with any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tracestep {

using Uint32x4 = std::array<std::uint32_t, 4>;

// Encrypts `counter` by the block cipher Philox4x32 with ten rounds.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
constexpr Uint32x4 philox4x32(Uint32x4 counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMultiplier0 * counter[0];
    const std::uint64_t p1 = kMultiplier1 * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// 64-bit FNV-1a: turns a stream's name into the upper half of its counters.
constexpr std::uint64_t stream_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Returns the z with P(Z <= z) = 0.5 + q for a standard normal Z, |q| < 0.5; relative error about
// 1e-16. Taking q instead of the probability keeps both tails exact.
double normal_quantile(double q);

// Returns the probability that |Z| <= limit for a standard normal Z.
double normal_mass_within(double limit);

class CounterRng {
 public:
  CounterRng(std::uint64_t seed, std::string_view stream_name)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        stream_(stream_hash(stream_name)) {}

  // Returns 128 random bits.
  Uint32x4 at(std::uint64_t index) const {
    return philox4x32(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
        key_);
  }

  // Returns a number in [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
  }
  // Returns a whole number in [0, bound) for bound > 0; its bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits(index)) * bound) >> 64);
  }
  // Returns a standard normal number.
  double normal(std::uint64_t index) const { return normal_quantile(centred(index)); }
  // Returns a standard normal number with |z| <= limit_sigmas, by the inverse distribution
  // function: one draw per index, without rejection. For many values make a TruncatedNormal once.
  double truncated_normal(std::uint64_t index, double limit_sigmas) const;

  // Returns a number uniform in (-0.5, 0.5), symmetric, without the ends: an odd multiple of 2^-53.
  double centred(std::uint64_t index) const {
    return (static_cast<double>(bits(index) >> 12) + 0.5) * 0x1p-52 - 0.5;
  }

 private:
  std::uint64_t bits(std::uint64_t index) const {
    const Uint32x4 words = at(index);
    return (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
  }

  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

// CounterRng::truncated_normal with the constant of its limit computed once.
class TruncatedNormal {
 public:
  explicit TruncatedNormal(double limit_sigmas)
      : limit_(limit_sigmas), mass_(normal_mass_within(limit_sigmas)) {}

  double operator()(const CounterRng& rng, std::uint64_t index) const {
    const double z = normal_quantile(rng.centred(index) * mass_);
    // Rounding in the quantile must not exceed the limit.
    return z > limit_ ? limit_ : z < -limit_ ? -limit_ : z;
  }

 private:
  double limit_, mass_;
};

}  // namespace tracestep
