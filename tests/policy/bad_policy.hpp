// Checks the error of a policy with a mistake.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::test {

/// A policy with a mistake.
struct BadPolicy {
  const char* text;
  const char* place;  // "line:column"
  const char* what;   // the whole message, or its beginning
};

inline void expect_bad(const BadPolicy& bad, ErrorCode code) {
  try {
    (void)Policy::parse(bad.text, "p.toml");
    ADD_FAILURE() << "accepted:\n" << bad.text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith(std::string("p.toml:") + bad.place + ": " + bad.what)) << bad.text;
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

}  // namespace gradwire::test
