// The library context of this library, and the errors that it leaves to nobody.
#pragma once

#include <openssl/err.h>
#include <openssl/types.h>

/// A library context of our own: what the job does to OpenSSL's default context, by its configuration file or its
/// providers, changes nothing here. It is never freed, since threads may use it until the process ends. Null where
/// there is no memory.
OSSL_LIB_CTX* own_context() noexcept;

/// Takes away the errors that calls of OpenSSL add to the thread's queue while this object lives. The job may have the
/// same libcrypto, and so the same queue, and would take them for its own.
class LeavesNoErrors {
 public:
  LeavesNoErrors() noexcept { ERR_set_mark(); }
  ~LeavesNoErrors() { ERR_pop_to_mark(); }
  LeavesNoErrors(const LeavesNoErrors&) = delete;
  LeavesNoErrors& operator=(const LeavesNoErrors&) = delete;
};
