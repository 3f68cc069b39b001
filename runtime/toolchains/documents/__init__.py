"""The toolchain of targets that exist only as documents: a build command and a runner."""
