"""Token providers for OAUTHBEARER: OIDC, AWS MSK and Microsoft Entra."""
