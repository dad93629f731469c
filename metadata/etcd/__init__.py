"""The metadata service in an etcd, through its HTTP/JSON gateway."""
