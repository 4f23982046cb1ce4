// Returns the error that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::test {

/// Returns the Error that `call()` throws; if it throws none, the test fails.
template <class Call>
Error error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::internal, "nothing was thrown"};
}

}  // namespace gradwire::test
