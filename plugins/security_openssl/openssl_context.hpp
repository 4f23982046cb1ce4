// The library context of this library.
#pragma once

#include <openssl/types.h>

/// A library context of our own: what the job does to OpenSSL's default context, by its configuration file or its
/// providers, changes nothing here. It is never freed, since threads may use it until the process ends. Null where
/// there is no memory.
OSSL_LIB_CTX* own_context() noexcept;
