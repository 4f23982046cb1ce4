// Shared by the tests of the C API: the job's ranks, and checks of statuses and error texts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

#include "gradwire/gradwire.h"

namespace gradwire::test {

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

inline void expect_error(gradwire_status status, gradwire_status wanted, const std::string& text) {
  EXPECT_EQ(status, wanted) << text;
  EXPECT_THAT(gradwire_last_error(), ::testing::HasSubstr(text));
}

inline void expect_invalid(gradwire_status status, const std::string& text) {
  expect_error(status, GRADWIRE_INVALID_ARGUMENT, text);
}

/// Makes a struct of options or results that states its size.
template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

}  // namespace gradwire::test

#define EXPECT_OK(call) EXPECT_EQ(call, GRADWIRE_OK) << gradwire_last_error()
#define ASSERT_OK(call) ASSERT_EQ(call, GRADWIRE_OK) << gradwire_last_error()
